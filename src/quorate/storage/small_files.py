"""The small files beside a log, checked and, where they are damaged, written again from memory.

Their content is in memory while the log is open, except for the snapshots of producers at the starts of segments. A
damaged snapshot is removed: the log is then replayed from an earlier one.
"""

from collections.abc import Callable, Sequence

from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import TopicId
from quorate.kernel.ports import Disk
from quorate.records.errors import CorruptBatch
from quorate.storage.checkpoints import read_epochs, read_offset, read_topic_id, write_offset, write_topic_id
from quorate.storage.file_names import (
    CLEANER_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT,
    RECOVERY_POINT_CHECKPOINT,
    file_name,
    offsets_of,
    path_of,
)
from quorate.storage.producer_snapshots import decode_snapshot
from quorate.storage.state import LogState, changes_log

_OFFSETS = (LOG_START_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, CLEANER_CHECKPOINT)


def find_damaged(disk: Disk, directory: str, topic_id: TopicId | None = None) -> list[str]:
    """The names of those that are not what they should be. Reads only, so that it may run in a worker thread."""
    damaged = [name for name in _OFFSETS if _fails(read_offset, disk, f"{directory}/{name}")]
    if _fails(read_epochs, disk, f"{directory}/{LEADER_EPOCH_CHECKPOINT}"):
        damaged.append(LEADER_EPOCH_CHECKPOINT)
    if topic_id is not None and read_topic_id(disk, directory) != topic_id:
        damaged.append(PARTITION_METADATA)
    return damaged + [
        file_name(offset, PRODUCER_SNAPSHOT)
        for offset in offsets_of(disk.list_directory(directory), PRODUCER_SNAPSHOT)
        if _snapshot_is_damaged(disk, path_of(directory, offset, PRODUCER_SNAPSHOT))
    ]


@changes_log
def repair_small_files(state: LogState, names: Sequence[str], topic_id: TopicId | None = None) -> None:
    """Write those that ``find_damaged`` has named again, from what is in memory, which is never damaged."""
    for name in names:
        path = f"{state.directory}/{name}"
        if name == LOG_START_CHECKPOINT:
            state.store_log_start(state.log_start_offset)
        elif name == RECOVERY_POINT_CHECKPOINT:
            state.durability.store_recovery_point()
        elif name == CLEANER_CHECKPOINT:
            write_offset(state.disk, path, state.cleaned_up_to)
        elif name == LEADER_EPOCH_CHECKPOINT:
            state.durability.note_epochs(state.epoch_cache.entries())  # Written with the next sync.
        elif name == PARTITION_METADATA and topic_id is not None:
            state.durability.note_written(write_topic_id(state.disk, state.directory, topic_id))
        elif name.endswith(PRODUCER_SNAPSHOT):
            state.disk.remove(path)


def _fails(read: Callable[[Disk, str], object], disk: Disk, path: str) -> bool:
    try:
        read(disk, path)
    except KafkaError:
        return True
    return False


def _snapshot_is_damaged(disk: Disk, path: str) -> bool:
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return False
    try:
        decode_snapshot(file.read(0, file.size()))
    except CorruptBatch:
        return True
    finally:
        file.close()
    return False
