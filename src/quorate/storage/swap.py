"""Putting a compacted segment in the place of those it was made from, so that a crash leaves one or the other.

The compacted log file is written and synced under ``.cleaned``. Renaming it to ``.swap``, durably, is the decision:
from there on recovery completes the exchange, before it recovery throws the file away. The replaced files are gone for
good before the new one takes its name, because an old segment beside the new one would repeat its offsets. The sparse
indexes and the checksums are not part of the exchange: where they are missing they are made anew. The aborted
transactions are: they are synced before the decision and renamed with it. Snapshots of producers from before the end of
what is replaced go with it: in one of them a transaction may be open whose marker is no longer in the log, and nothing
would ever end it.
"""

from quorate.kernel.ids import Offset
from quorate.kernel.ports import Disk
from quorate.storage.batch_scan import scan_headers
from quorate.storage.file_names import (
    CHECKSUMS,
    CLEANED,
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    SWAP,
    TEMPORARY,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
    offsets_of,
    path_of,
)
from quorate.storage.segment import Segment
from quorate.storage.state import LogState


def swap_in(state: LogState, made: Segment, replaced: list[Segment]) -> Segment:
    """Put a segment that was made aside, complete and synced, in the place of those that it stands for."""
    base_offset = made.base_offset
    _decide(state.disk, state.directory, base_offset)
    bases = [segment.base_offset for segment in replaced]
    _carry_out(state.disk, state.directory, base_offset, bases, state.segments.next_base_after(replaced[-1]))
    for suffix in (OFFSET_INDEX, TIME_INDEX, CHECKSUMS):
        state.disk.rename(
            path_of(state.directory, base_offset, suffix + CLEANED), path_of(state.directory, base_offset, suffix)
        )
    new = Segment(state.disk, state.directory, base_offset, is_new=False)
    new.size_bytes = new.summed_up_bytes = made.size_bytes
    new.is_sealed = True
    for segment in replaced:
        segment.release()
    made.release()
    state.segments.replace(replaced, [new])
    return new


def _decide(disk: Disk, directory: str, base_offset: Offset) -> None:
    """From here on the exchange happens, whatever else does."""
    disk.rename(path_of(directory, base_offset, LOG + CLEANED), path_of(directory, base_offset, LOG + SWAP))
    disk.sync_directory(directory)


def _carry_out(disk: Disk, directory: str, base_offset: Offset, replaced: list[Offset], end: Offset | None) -> None:
    """Take away what is replaced and give the new segment its name. It ends at ``end``; None if nobody knows where."""
    for offset in offsets_of(disk.list_directory(directory), PRODUCER_SNAPSHOT):
        if end is None or offset < end:
            disk.remove(path_of(directory, offset, PRODUCER_SNAPSHOT))
    for offset in replaced:
        disk.remove(path_of(directory, offset, OFFSET_INDEX))
        disk.remove(path_of(directory, offset, TIME_INDEX))
        disk.remove(path_of(directory, offset, CHECKSUMS))
        if offset != base_offset:
            disk.remove(path_of(directory, offset, TRANSACTION_INDEX))
            disk.remove(path_of(directory, offset, LOG))
    _take_over_transactions(disk, directory, base_offset)
    disk.sync_directory(directory)
    disk.rename(path_of(directory, base_offset, LOG + SWAP), path_of(directory, base_offset, LOG))
    disk.sync_directory(directory)


def finish_swaps(disk: Disk, directory: str) -> None:
    """On opening a log: complete the exchanges that were decided and remove what is left of the others."""
    names = disk.list_directory(directory)
    for base_offset in offsets_of(names, LOG + SWAP):
        end = _end_of(disk, path_of(directory, base_offset, LOG + SWAP), base_offset)
        bases = offsets_of(names, LOG)
        replaced = [offset for offset in bases if base_offset <= offset < end]
        following = next((offset for offset in bases if offset >= end), None)
        _carry_out(disk, directory, base_offset, [*replaced, base_offset], following)
    for name in names:
        if name.endswith((CLEANED, TEMPORARY)):
            disk.remove(f"{directory}/{name}")


def _take_over_transactions(disk: Disk, directory: str, base_offset: Offset) -> None:
    """Where none were aborted there is no file; and none any more where a crash came after the renaming."""
    cleaned = file_name(base_offset, TRANSACTION_INDEX + CLEANED)
    if cleaned in disk.list_directory(directory):
        disk.rename(f"{directory}/{cleaned}", path_of(directory, base_offset, TRANSACTION_INDEX))


def _end_of(disk: Disk, path: str, base_offset: Offset) -> Offset:
    file = disk.open(path)
    end = Offset(base_offset + 1)
    for _, header in scan_headers(file, 0, file.size()):
        end = header.next_offset
    file.close()
    return end
