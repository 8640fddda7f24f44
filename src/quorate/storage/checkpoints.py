"""The small text files of a partition's folder: offsets, leader epochs, and which topic the folder belongs to.

Each is replaced whole, durably and atomically, so a reader sees one version or the other and a file that does not parse
was damaged by something else. ``leader-epoch-checkpoint`` and ``partition.metadata`` are Kafka's; Kafka keeps the
offsets of all partitions in one file per data folder, here each partition has its own, so that a folder can be
recovered alone.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from uuid import UUID

from quorate.kernel.disk import Disk
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch, Offset, TopicId
from quorate.storage.file_names import PARTITION_METADATA

_VERSION = "0"

EpochStart = tuple[LeaderEpoch, Offset]


def read_offset(disk: Disk, path: str) -> Offset | None:
    lines = _read_lines(disk, path)
    if lines is None:
        return None
    try:
        version, offset = lines
        _require_version(version)
        return Offset(int(offset))
    except ValueError as error:
        raise _damaged(path) from error


def write_offset(disk: Disk, path: str, offset: Offset) -> None:
    disk.replace(path, f"{_VERSION}\n{offset}\n".encode())


def read_epochs(disk: Disk, path: str) -> list[EpochStart] | None:
    lines = _read_lines(disk, path)
    if lines is None:
        return None
    try:
        version, count, *entries = lines
        _require_version(version)
        pairs = [entry.split() for entry in entries]
        if len(pairs) != int(count):
            raise ValueError("another number of entries than the file declares")
        return [(LeaderEpoch(int(epoch)), Offset(int(start))) for epoch, start in pairs]
    except ValueError as error:
        raise _damaged(path) from error


def write_epochs(disk: Disk, path: str, epochs: Sequence[EpochStart]) -> None:
    lines = [_VERSION, str(len(epochs)), *(f"{epoch} {start}" for epoch, start in epochs)]
    disk.replace(path, "".join(f"{line}\n" for line in lines).encode())


def read_topic_id(disk: Disk, directory: str) -> TopicId | None:
    """None where there is no such file, or none that can be read: then a power cut came before it was synced."""
    try:
        lines = _read_lines(disk, f"{directory}/{PARTITION_METADATA}")
        fields = dict(line.split(": ", 1) for line in lines or ())
        _require_version(fields["version"])
        return TopicId(UUID(bytes=urlsafe_b64decode(fields["topic_id"] + "==")))
    except (ValueError, KeyError, KafkaError):
        return None


def write_topic_id(disk: Disk, directory: str, topic_id: TopicId) -> str:
    """Write the file, which is not durable before it is synced; returns its path."""
    path = f"{directory}/{PARTITION_METADATA}"
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        encoded = urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
        file.append([f"version: {_VERSION}\ntopic_id: {encoded}".encode()])
    finally:
        file.close()
    return path


def _read_lines(disk: Disk, path: str) -> list[str] | None:
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        content = file.read(0, file.size())
    finally:
        file.close()
    try:
        return content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise _damaged(path) from error


def _require_version(version: str) -> None:
    if version != _VERSION:
        raise ValueError(f"version {version}")


def _damaged(path: str) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the checkpoint file {path} is damaged")
