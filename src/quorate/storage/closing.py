"""The end of a log's life in this process: closed for the next start, or deleted with all it holds."""

from collections.abc import Sequence
from itertools import count

from quorate.kernel.ids import Offset, TopicId
from quorate.kernel.ports import Disk
from quorate.storage.checkpoints import write_epochs
from quorate.storage.file_names import LEADER_EPOCH_CHECKPOINT, PRODUCER_SNAPSHOT, parent_of, path_of, with_suffix
from quorate.storage.index_repair import seal
from quorate.storage.producer_snapshot import encode_snapshot
from quorate.storage.segment_checks import sum_up
from quorate.storage.state import LogState

DELETED_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"


def close(state: LogState) -> None:
    active = state.segments.active
    if active.is_created:
        seal(active, state.log_end_offset, state.config.index_interval_bytes)
        for file in active.files():
            file.sync()
        state.durability.note_file_created()
    state.durability.sync(state.tail)
    if active.is_created:
        sum_up(state, active, state.log_end_offset)  # Of the others the scrub does so, at its own pace.
    if state.durability.recovery_point < state.log_end_offset:
        _checkpoint(state, state.log_end_offset)
    for segment in state.segments:
        segment.release()


def delete(state: LogState) -> None:
    release(state)
    remove_logs(state.disk, [state.directory])


def release(state: LogState) -> None:
    """Hold no file of the log open any more."""
    for segment in state.segments:
        segment.release()


def remove_log(disk: Disk, directory: str) -> None:
    remove_logs(disk, [directory])


def remove_logs(disk: Disk, directories: Sequence[str]) -> None:
    """Each in one step out of the way: what is half removed is never taken for a log."""
    doomed = [with_suffix(directory, DELETED_SUFFIX) for directory in directories]
    for directory, target in zip(directories, doomed, strict=True):
        disk.remove_tree(target)
        disk.rename(directory, target)
    for parent in dict.fromkeys(map(parent_of, directories)):
        disk.sync_directory(parent)
    for target in doomed:
        disk.remove_tree(target)


def set_aside(disk: Disk, directory: str, topic_id: TopicId) -> str:
    """Keep a log under a name that no other log has, and that none is opened by; returns its path."""
    parent, _, name = directory.rpartition("/")
    topic, _, index = name.rpartition("-")
    for attempt in count():
        number = f".{attempt}" if attempt else ""
        stray = with_suffix(f"{parent}/{topic}", f"-{index}.{topic_id.hex}{number}{STRAY_SUFFIX}")
        if not disk.list_directory(stray):
            break
    disk.rename(directory, stray)
    disk.sync_directory(parent)
    return stray


def _checkpoint(state: LogState, end: Offset) -> None:
    state.disk.replace(path_of(state.directory, end, PRODUCER_SNAPSHOT), encode_snapshot(state.producers))
    write_epochs(state.disk, f"{state.directory}/{LEADER_EPOCH_CHECKPOINT}", state.epochs.entries())
    state.durability.checkpoint(end)
