"""The small files beside a log, checked against what the log knows, and made anew where they have rotted.

Everything that they say is in memory while the log is open, except for the snapshots of producers at the starts of
segments. A snapshot that is damaged is removed: whoever would have used it replays the log from an earlier one.
"""

from quorate.kernel.errors import KafkaError
from quorate.records.errors import CorruptBatch
from quorate.storage.checkpoints import read_epochs, read_offset, write_offset
from quorate.storage.file_names import (
    CLEANER_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PRODUCER_SNAPSHOT,
    RECOVERY_POINT_CHECKPOINT,
    file_name,
    offsets_of,
    path_of,
)
from quorate.storage.producer_snapshot import decode_snapshot
from quorate.storage.state import LogState


def repair(state: LogState) -> list[str]:
    repaired = []
    if _is_damaged(state, LOG_START_CHECKPOINT):
        state.store_log_start(state.log_start_offset)
        repaired.append(LOG_START_CHECKPOINT)
    if _is_damaged(state, RECOVERY_POINT_CHECKPOINT):
        state.durability.store_recovery_point()
        repaired.append(RECOVERY_POINT_CHECKPOINT)
    if _is_damaged(state, CLEANER_CHECKPOINT):
        write_offset(state.disk, f"{state.directory}/{CLEANER_CHECKPOINT}", state.cleaned_up_to)
        repaired.append(CLEANER_CHECKPOINT)
    if _epochs_are_damaged(state):
        state.durability.note_epochs(state.epochs.entries())  # Written with the next sync.
        repaired.append(LEADER_EPOCH_CHECKPOINT)
    return repaired + _remove_damaged_snapshots(state)


def _is_damaged(state: LogState, name: str) -> bool:
    try:
        read_offset(state.disk, f"{state.directory}/{name}")
    except KafkaError:
        return True
    return False


def _epochs_are_damaged(state: LogState) -> bool:
    try:
        read_epochs(state.disk, f"{state.directory}/{LEADER_EPOCH_CHECKPOINT}")
    except KafkaError:
        return True
    return False


def _remove_damaged_snapshots(state: LogState) -> list[str]:
    removed = []
    for offset in offsets_of(state.disk.list_directory(state.directory), PRODUCER_SNAPSHOT):
        path = path_of(state.directory, offset, PRODUCER_SNAPSHOT)
        try:
            file = state.disk.open(path)
        except FileNotFoundError:
            continue
        try:
            decode_snapshot(file.read(0, file.size()))
        except CorruptBatch:
            state.disk.remove(path)
            removed.append(file_name(offset, PRODUCER_SNAPSHOT))
        finally:
            file.close()
    return removed
