"""Putting a compacted segment in the place of those it was made from, so that a crash leaves one or the other.

====  ======================================================  ==========================================
step  durable afterwards                                      recovery from a crash after this step
====  ======================================================  ==========================================
1     the new log as ``.log.cleaned``, with its               removes the ``.cleaned`` files: the old
      ``.txnindex.cleaned`` and checksums                     segments stay
2     its name is ``.log.swap``: this is the decision         continues with step 3
3     the replaced files and older snapshots are removed,     continues with step 3
      and the transaction index has its name
4     its name is ``.log``                                    makes the sparse indexes from the log, if
                                                              they have not got their names yet
====  ======================================================  ==========================================

The replaced files are removed before the new one takes its name, because an old segment beside the new one would repeat
its offsets. Snapshots of producers from before the end of what is replaced are removed, too: a transaction may be open
in one of them whose marker is no longer in the log, and nothing would ever end it.
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
    """Replace segments by one that was made aside, complete and synced."""
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
    """After this the exchange will be completed, by recovery if need be."""
    disk.rename(path_of(directory, base_offset, LOG + CLEANED), path_of(directory, base_offset, LOG + SWAP))
    disk.sync_directory(directory)


def _carry_out(disk: Disk, directory: str, base_offset: Offset, replaced: list[Offset], end: Offset | None) -> None:
    """Remove the replaced segments and give the new one its name. It ends at ``end``; None if that is unknown."""
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
    """When a log is opened: complete the exchanges that were decided, and remove the files of the others."""
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
    """There is no file where no transaction was aborted, or where a crash came after the renaming."""
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
