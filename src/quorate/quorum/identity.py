"""Who a node is, for good: its id, its cluster's and its data folder's, kept there in ``meta.properties``.

The file has a CRC of itself in its last line, and there is a copy of it beside, from which it is made anew where it was
damaged. One without the CRC is of an earlier version.
"""

from collections.abc import Callable, Mapping
from uuid import UUID

import msgspec

from quorate.kernel.checksum import crc32c
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import DirectoryId, NodeId, new_cluster_id
from quorate.kernel.ports import Disk
from quorate.quorum import doubled_file
from quorate.quorum.doubled_file import Finding, read_all

FILE_NAME = "meta.properties"
COPY_NAME = "meta.properties.copy"
_CRC = "crc32c"
#: Set once the node has entries of the metadata log: from then on an empty log is one that was lost.
_JOINED = "joined"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    directory_id: DirectoryId
    #: One of the two files was damaged, and has been made anew from the other.
    finding: Finding | None = None


def settle_identity(
    disk: Disk, data_dir: str, node_id: NodeId, configured: str | None, new_uuid: Callable[[], UUID]
) -> Identity:
    """What the data folder belongs to. A folder of another node or cluster is refused, a new one is marked."""
    path = f"{data_dir}/{FILE_NAME}"
    kept, finding = _settle_copies(disk, data_dir)
    if kept is None:
        return _mark(disk, data_dir, node_id, configured or new_cluster_id(new_uuid()), new_uuid())
    kept_node_id, cluster_id = kept.get("node.id", ""), kept.get("cluster.id", "")
    if not kept_node_id or not cluster_id:
        raise QuorateError(f"{path} is damaged: it must name the node.id and the cluster.id that the folder belongs to")
    if kept_node_id != str(node_id):
        raise QuorateError(f"{data_dir} holds the data of node {kept_node_id}, not of node {node_id}")
    if configured is not None and cluster_id != configured:
        raise QuorateError(f"{data_dir} belongs to the cluster {cluster_id!r}, not to {configured!r}")
    if "directory.id" not in kept:  # The folder is from before there were such ids.
        return _mark(disk, data_dir, node_id, cluster_id, new_uuid())
    try:
        directory_id = DirectoryId(UUID(kept["directory.id"]))
        return Identity(cluster_id=cluster_id, directory_id=directory_id, finding=finding)
    except ValueError:
        raise QuorateError(f"{path} is damaged: its directory.id is {kept['directory.id']!r}, which is no id") from None


def has_joined(disk: Disk, data_dir: str) -> bool:
    return (_parse(read_all(disk, f"{data_dir}/{FILE_NAME}")) or {}).get(_JOINED) == "true"


def mark_joined(disk: Disk, data_dir: str) -> None:
    kept, _ = _settle_copies(disk, data_dir)
    if kept is not None and _JOINED not in kept:
        _write(disk, data_dir, {**kept, _JOINED: "true"})


def check_identity(disk: Disk, data_dir: str) -> Finding | None:
    """Compare the two files, and make the damaged one anew from the other."""
    return _settle_copies(disk, data_dir)[1]


def _mark(disk: Disk, data_dir: str, node_id: NodeId, cluster_id: str, directory_id: UUID) -> Identity:
    fields = {"version": "1", "node.id": str(node_id), "cluster.id": cluster_id, "directory.id": str(directory_id)}
    _write(disk, data_dir, fields)
    return Identity(cluster_id=cluster_id, directory_id=DirectoryId(directory_id))


def _settle_copies(disk: Disk, data_dir: str) -> tuple[dict[str, str] | None, Finding | None]:
    """What the files say, now both of them, and which one of them was damaged."""
    stored = read_all(disk, f"{data_dir}/{FILE_NAME}")
    copy = doubled_file.read(disk, f"{data_dir}/{COPY_NAME}")
    content = None if copy is None else copy.content
    if stored is not None and _has_right_crc(stored):
        if copy is None or copy.is_damaged or content != stored:
            disk.replace(f"{data_dir}/{COPY_NAME}", doubled_file.encode(stored))
        return _parse(stored), _finding(data_dir, COPY_NAME) if copy is not None and copy.is_damaged else None
    if content is None or not _has_right_crc(content):
        return _parse(stored), None  # Of an earlier version, or there is nothing to repair it from.
    disk.replace(f"{data_dir}/{FILE_NAME}", content)
    if copy is not None and copy.is_damaged:
        disk.replace(f"{data_dir}/{COPY_NAME}", doubled_file.encode(content))
    return _parse(content), None if stored is None else _finding(data_dir, FILE_NAME)


def _finding(data_dir: str, name: str) -> Finding:
    return Finding(path=f"{data_dir}/{name}", problem="it is not as it was written", is_repaired=True)


def _write(disk: Disk, data_dir: str, fields: Mapping[str, str]) -> None:
    text = "".join(f"{name}={value}\n" for name, value in fields.items())
    content = f"{text}{_crc_line(text.encode())}".encode()
    disk.replace(f"{data_dir}/{FILE_NAME}", content)
    disk.replace(f"{data_dir}/{COPY_NAME}", doubled_file.encode(content))


def _crc_line(text: bytes) -> str:
    return f"{_CRC}={crc32c(text):08x}\n"


def _has_right_crc(stored: bytes) -> bool:
    size = len(stored) - len(_crc_line(b""))
    return size > 0 and stored[size:] == _crc_line(stored[:size]).encode()


def _parse(stored: bytes | None) -> dict[str, str] | None:
    if stored is None:
        return None
    lines = stored.decode(errors="replace").splitlines()
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    fields.pop(_CRC, None)
    return fields
