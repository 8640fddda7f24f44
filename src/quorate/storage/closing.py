"""The end of a log's life in this process: closed for the next start, or deleted with all it holds."""

from quorate.kernel.disk import Disk
from quorate.kernel.ids import Offset
from quorate.storage.checkpoints import write_epochs
from quorate.storage.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    PRODUCER_SNAPSHOT,
    parent_of,
    path_of,
    with_suffix,
)
from quorate.storage.producer_snapshot import encode_snapshot
from quorate.storage.state import LogState

DELETED_SUFFIX = "-delete"


def close(state: LogState) -> None:
    active = state.segments.active
    if active.is_created:
        active.seal()
        for file in active.files():
            file.sync()
        state.durability.note_file_created()
    state.durability.sync(state.tail)
    if state.durability.recovery_point < state.log_end_offset:
        _checkpoint(state, state.log_end_offset)
    for segment in state.segments:
        segment.release()


def delete(state: LogState) -> None:
    for segment in state.segments:
        segment.release()
    remove_log(state.disk, state.directory)


def remove_log(disk: Disk, directory: str) -> None:
    """In one step out of the way: what is half removed is never taken for a log."""
    doomed = with_suffix(directory, DELETED_SUFFIX)
    disk.remove_tree(doomed)
    disk.rename(directory, doomed)
    disk.sync_directory(parent_of(directory))
    disk.remove_tree(doomed)


def _checkpoint(state: LogState, end: Offset) -> None:
    state.disk.replace(path_of(state.directory, end, PRODUCER_SNAPSHOT), encode_snapshot(state.producers))
    write_epochs(state.disk, f"{state.directory}/{LEADER_EPOCH_CHECKPOINT}", state.epochs.entries())
    state.durability.checkpoint(end)
