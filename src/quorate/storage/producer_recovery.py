"""Bringing back what a log knows of its producers: a usable snapshot, and the batches after it.

The replay also finds again which transactions were aborted, for transaction indexes that are lost or not up to date.
"""

from collections.abc import Container

from quorate.kernel.ids import Offset
from quorate.kernel.ports import Disk
from quorate.records.batch import BatchHeader
from quorate.records.control import marker_of_batch
from quorate.records.errors import CorruptBatch, UnsupportedMagic
from quorate.storage.file_names import PRODUCER_SNAPSHOT, offsets_of, path_of
from quorate.storage.index_repair import find_unreadable
from quorate.storage.producer_snapshot import decode_snapshot
from quorate.storage.producer_state import ProducerStates
from quorate.storage.segment import Segment
from quorate.storage.segments import Segments

_IN_FLIGHT_BYTES = 1 << 20


def rebuild_producers(disk: Disk, directory: str, segments: Segments, *, snapshot_up_to: Offset) -> ProducerStates:
    """From the newest usable snapshot that is not above the offset. What was aborted since is in the indexes then.

    One below the first segment is of no use: what has happened between the two, the end of a transaction among it, was
    deleted.
    """
    offsets = offsets_of(disk.list_directory(directory), PRODUCER_SNAPSHOT)
    for offset in reversed([offset for offset in offsets if segments.first.base_offset <= offset <= snapshot_up_to]):
        states = _read_snapshot(disk, path_of(directory, offset, PRODUCER_SNAPSHOT))
        if states is not None:
            _recall_windows(states, segments, offset)
            return _replay(states, segments, offset)
    return _replay(ProducerStates(), segments, segments.first.base_offset)


def rebuild_from_what_is_sound(
    disk: Disk, directory: str, segments: Segments, log_end_offset: Offset, *, snapshot_up_to: Offset
) -> tuple[ProducerStates, bool]:
    """The same without what is damaged, and whether nothing that was needed is."""
    try:
        return rebuild_producers(disk, directory, segments, snapshot_up_to=snapshot_up_to), True
    except (CorruptBatch, UnsupportedMagic):
        for segment, end in segments.with_ends(log_end_offset):
            find_unreadable(segment, end)
        return rebuild_producers(disk, directory, segments, snapshot_up_to=snapshot_up_to), False


def remove_snapshots(disk: Disk, directory: str, *, above: Offset) -> None:
    """Remove the snapshots that stand for a longer log than there is."""
    for offset in offsets_of(disk.list_directory(directory), PRODUCER_SNAPSHOT):
        if offset > above:
            disk.remove(path_of(directory, offset, PRODUCER_SNAPSHOT))


def remove_stale_snapshots(disk: Disk, directory: str, bases: Container[Offset], end: Offset) -> None:
    """Keep the snapshots that stand at the start of a segment, for truncations, and the newest one."""
    remove_snapshots(disk, directory, above=end)
    for offset in offsets_of(disk.list_directory(directory), PRODUCER_SNAPSHOT)[:-1]:
        if offset not in bases:
            disk.remove(path_of(directory, offset, PRODUCER_SNAPSHOT))


def _replay(states: ProducerStates, segments: Segments, start: Offset) -> ProducerStates:
    for segment in segments.starting_from(start):
        for position, header in segment.headers_from(segment.position_of(start)):
            states.advance(header, header.base_offset, header.max_timestamp)
            if header.is_control and header.producer_id >= 0:
                _replay_marker(states, segment, position, header)
    return states


def _replay_marker(states: ProducerStates, segment: Segment, position: int, header: BatchHeader) -> None:
    marker = marker_of_batch(segment.file.read(position, header.size_bytes))
    if marker is None:
        return
    aborted = states.end_transaction(header.producer_id, marker, header.base_offset)
    if aborted is not None:
        segment.transaction_index.add(aborted)


def _recall_windows(states: ProducerStates, segments: Segments, end: Offset) -> None:
    """A snapshot knows one batch of each producer; a retry may be of an earlier one, near the end of the log."""
    if len(states) == 0:
        return
    recent = ProducerStates()
    for segment, start, stop in _last_bytes(segments, end):
        for _, header in segment.headers_between(start, stop):
            recent.advance(header, header.base_offset, header.max_timestamp)
    for producer_id, entry in states:
        window = recent.get(producer_id)
        if window is not None and window.ends_like(entry):
            entry.batches = window.batches


def _last_bytes(segments: Segments, end: Offset) -> list[tuple[Segment, int, int]]:
    """Where the last batches below ``end`` are, in order, about as much as producers can have in flight."""
    pieces = []
    wanted_bytes = _IN_FLIGHT_BYTES
    for segment in reversed(segments.up_to(end)):
        stop = segment.position_of(end)
        start = segment.offset_index.position_at_or_before(max(0, stop - wanted_bytes))
        pieces.append((segment, start, stop))
        wanted_bytes -= stop - start
        if wanted_bytes <= 0:
            break
    return pieces[::-1]


def _read_snapshot(disk: Disk, path: str) -> ProducerStates | None:
    file = disk.open(path)
    try:
        return decode_snapshot(file.read(0, file.size()))
    except CorruptBatch:
        return None
    finally:
        file.close()
