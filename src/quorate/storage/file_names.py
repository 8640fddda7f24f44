"""The names of the files in a partition's folder.

A segment's files carry its base offset in 20 digits; a producer snapshot carries the offset it stands for. Two suffixes
mark the steps of a compaction: ``.cleaned`` is not finished and is thrown away after a crash, ``.swap`` is finished and
must replace the segments that it was made from.
"""

from quorate.kernel.ids import Offset

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
PRODUCER_SNAPSHOT = ".snapshot"
#: Checksums of the files of a segment: see ``segment_checksums``. Apache Kafka has no such file; its tools ignore it.
CHECKSUMS = ".checksum"
CLEANED = ".cleaned"
SWAP = ".swap"
TEMPORARY = ".tmp"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
PARTITION_METADATA = "partition.metadata"

_OFFSET_DIGITS = 20


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def path_of(directory: str, offset: int, suffix: str) -> str:
    return f"{directory}/{offset:020d}{suffix}"


def offsets_of(names: list[str], suffix: str) -> list[Offset]:
    """The offsets of the files that are named ``<20 digits><suffix>``, in order."""
    offsets = (offset_of(name, suffix) for name in names)
    return sorted(offset for offset in offsets if offset is not None)


def offset_of(name: str, suffix: str) -> Offset | None:
    stem = name.removesuffix(suffix)
    if stem == name or len(stem) != _OFFSET_DIGITS or not stem.isdecimal():
        return None
    return Offset(int(stem))


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]
