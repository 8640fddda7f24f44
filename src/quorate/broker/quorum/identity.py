"""Who a node is, for good: its id, its cluster's and its data folder's, kept there in ``meta.properties``."""

from collections.abc import Callable, Mapping
from uuid import UUID

import msgspec

from quorate.kernel.disk import Disk
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import DirectoryId, NodeId
from quorate.metadata.cluster_ids import new_cluster_id

_FILE = "meta.properties"
#: Set once the node has entries of the metadata log: from then on an empty log is one that was lost.
_JOINED = "joined"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    directory_id: DirectoryId


def settle_identity(
    disk: Disk, data_dir: str, node_id: NodeId, configured: str | None, new_uuid: Callable[[], UUID]
) -> Identity:
    """What the data folder belongs to. A folder of another node or cluster is refused, a new one is marked."""
    path = f"{data_dir}/{_FILE}"
    kept = _read(disk, path)
    if kept is None:
        return _mark(disk, path, node_id, configured or new_cluster_id(new_uuid()), new_uuid())
    kept_node_id, cluster_id = kept.get("node.id", ""), kept.get("cluster.id", "")
    if not kept_node_id or not cluster_id:
        raise QuorateError(f"{path} is damaged: it must name the node.id and the cluster.id that the folder belongs to")
    if kept_node_id != str(node_id):
        raise QuorateError(f"{data_dir} holds the data of node {kept_node_id}, not of node {node_id}")
    if configured is not None and cluster_id != configured:
        raise QuorateError(f"{data_dir} belongs to the cluster {cluster_id!r}, not to {configured!r}")
    if "directory.id" not in kept:  # The folder is from before there were such ids.
        return _mark(disk, path, node_id, cluster_id, new_uuid())
    try:
        return Identity(cluster_id=cluster_id, directory_id=DirectoryId(UUID(kept["directory.id"])))
    except ValueError:
        raise QuorateError(f"{path} is damaged: its directory.id is {kept['directory.id']!r}, which is no id") from None


def has_joined(disk: Disk, data_dir: str) -> bool:
    return (_read(disk, f"{data_dir}/{_FILE}") or {}).get(_JOINED) == "true"


def mark_joined(disk: Disk, data_dir: str) -> None:
    path = f"{data_dir}/{_FILE}"
    kept = _read(disk, path)
    if kept is not None and _JOINED not in kept:
        _write(disk, path, {**kept, _JOINED: "true"})


def _mark(disk: Disk, path: str, node_id: NodeId, cluster_id: str, directory_id: UUID) -> Identity:
    fields = {"version": "1", "node.id": str(node_id), "cluster.id": cluster_id, "directory.id": str(directory_id)}
    _write(disk, path, fields)
    return Identity(cluster_id=cluster_id, directory_id=DirectoryId(directory_id))


def _write(disk: Disk, path: str, fields: Mapping[str, str]) -> None:
    disk.replace(path, "".join(f"{name}={value}\n" for name, value in fields.items()).encode())


def _read(disk: Disk, path: str) -> dict[str, str] | None:
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        lines = file.read(0, file.size()).decode(errors="replace").splitlines()
    finally:
        file.close()
    return dict(line.split("=", 1) for line in lines if "=" in line)
