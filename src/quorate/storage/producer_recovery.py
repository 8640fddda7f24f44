"""Bringing back what a log knows of its producers: the newest usable snapshot, and the batches after it."""

from collections.abc import Container

from quorate.kernel.disk import Disk
from quorate.kernel.ids import Offset
from quorate.records.errors import CorruptBatch
from quorate.storage.file_names import PRODUCER_SNAPSHOT, offsets_of, path_of
from quorate.storage.producer_snapshot import decode_snapshot
from quorate.storage.producer_state import ProducerStates
from quorate.storage.segments import Segments


def rebuild_producers(disk: Disk, directory: str, segments: Segments, end: Offset) -> ProducerStates:
    offsets = offsets_of(disk.list_directory(directory), PRODUCER_SNAPSHOT)
    for offset in reversed([offset for offset in offsets if offset <= end]):
        states = _read_snapshot(disk, path_of(directory, offset, PRODUCER_SNAPSHOT))
        if states is not None:
            return _replay(states, segments, offset)
    return _replay(ProducerStates(), segments, segments.first.base_offset)


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
        for _, header in segment.headers_from(segment.position_of(start)):
            states.advance(header, header.base_offset, header.max_timestamp)
    return states


def _read_snapshot(disk: Disk, path: str) -> ProducerStates | None:
    file = disk.open(path)
    try:
        return decode_snapshot(file.read(0, file.size()))
    except CorruptBatch:
        return None
    finally:
        file.close()
