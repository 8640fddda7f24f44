"""The small text files of a partition's folder: offsets, leader epochs, and which topic the folder belongs to.

Each is replaced whole, durably and atomically, so a reader sees one version or the other and a file that does not parse
was damaged by something else. ``leader-epoch-checkpoint`` and ``partition.metadata`` are Kafka's; Kafka keeps the
offsets of all partitions in one file per data folder, here each partition has its own, so that a folder can be
recovered alone.

Each carries a CRC of itself, so that a flipped digit is not taken for another number: in a last line where the format
has room for one, and in ``leader-epoch-checkpoint``, in which Kafka takes every line for an entry, as blanks and tabs
at the end of the last one. Files without a CRC, which Kafka or an earlier version wrote, are read as they are.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from uuid import UUID

from quorate.kernel.checksum import crc32c
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch, Offset, TopicId
from quorate.kernel.ports import Disk
from quorate.storage.file_names import PARTITION_METADATA

_VERSION = "0"
_CRC_BITS = 32
_BLANKS_FOR = str.maketrans("01", " \t")
_ENTRY = re.compile(r"(-?[0-9]+) +(-?[0-9]+)([ \t]{32})?")
_FIELDS_WITHOUT_CRC = 2

EpochStart = tuple[LeaderEpoch, Offset]


def read_offset(disk: Disk, path: str) -> Offset | None:
    lines = _read_lines(disk, path)
    if lines is None:
        return None
    try:
        version, offset, *crc = lines
        _require_version(version)
        if crc and crc != [f"{_crc_of(_offset_lines(offset)):08x}"]:
            raise ValueError("a wrong CRC")
        return Offset(int(offset))
    except ValueError as error:
        raise _damaged(path) from error


def write_offset(disk: Disk, path: str, offset: Offset) -> None:
    content = _offset_lines(str(offset))
    disk.replace(path, f"{content}\n{_crc_of(content):08x}\n".encode())


def _offset_lines(offset: str) -> str:
    return f"{_VERSION}\n{offset}"


def read_epochs(disk: Disk, path: str) -> list[EpochStart] | None:
    lines = _read_lines(disk, path)
    if lines is None:
        return None
    try:
        version, count, *entries = lines
        _require_version(version)
        if count != str(len(entries)):
            raise ValueError("another number of entries than the file declares")
        found = [_ENTRY.fullmatch(entry) for entry in entries]
        pairs = [(LeaderEpoch(int(each[1])), Offset(int(each[2]))) for each in found if each is not None]
        crcs = [each[3] for each in found if each is not None]
        if len(pairs) != len(entries) or any(crcs[:-1]):
            raise ValueError("a line that is no entry")
        if crcs and crcs[-1] and crcs[-1] != _crc_in_blanks("\n".join(lines)[:-_CRC_BITS]):
            raise ValueError("a wrong CRC")
        return pairs
    except ValueError as error:
        raise _damaged(path) from error


def write_epochs(disk: Disk, path: str, epochs: Sequence[EpochStart]) -> None:
    lines = [_VERSION, str(len(epochs)), *(f"{epoch} {start}" for epoch, start in epochs)]
    content = "\n".join(lines)
    disk.replace(path, f"{content}{_crc_in_blanks(content) if epochs else ''}\n".encode())


def read_topic_id(disk: Disk, directory: str) -> TopicId | None:
    """None where there is no such file, or none that can be read: it was never synced, or it is damaged."""
    try:
        lines = _read_lines(disk, f"{directory}/{PARTITION_METADATA}")
        fields = dict(line.split(": ", 1) for line in lines or ())
        _require_version(fields["version"])
        if len(fields) > _FIELDS_WITHOUT_CRC and fields["crc"] != f"{_crc_of(_topic_id_lines(fields['topic_id'])):08x}":
            return None
        return TopicId(UUID(bytes=urlsafe_b64decode(fields["topic_id"] + "==")))
    except (ValueError, KeyError, KafkaError):
        return None


def write_topic_id(disk: Disk, directory: str, topic_id: TopicId) -> str:
    """Write the file, which is not durable before it is synced; returns its path."""
    path = f"{directory}/{PARTITION_METADATA}"
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        content = _topic_id_lines(urlsafe_b64encode(topic_id.bytes).decode().rstrip("="))
        file.append([f"{content}\ncrc: {_crc_of(content):08x}\n".encode()])
    finally:
        file.close()
    return path


def _topic_id_lines(encoded: str) -> str:
    return f"version: {_VERSION}\ntopic_id: {encoded}"


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
        return content.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise _damaged(path) from error


def _crc_of(content: str) -> int:
    return crc32c(content.encode())


def _crc_in_blanks(content: str) -> str:
    return f"{_crc_of(content):032b}".translate(_BLANKS_FOR)


def _require_version(version: str) -> None:
    if version != _VERSION:
        raise ValueError(f"version {version}")


def _damaged(path: str) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the checkpoint file {path} is damaged")
