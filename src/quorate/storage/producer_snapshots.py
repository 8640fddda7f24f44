"""The state of a log's producers, stored and restored: a snapshot file, and the replay of the batches after it.

A snapshot has Kafka's format (version 1). It keeps the last batch of each producer, as Kafka's does, and where its open
transaction began; the window of earlier batches comes back from the log. The replay also finds again which transactions
were aborted, for transaction indexes that are lost or not up to date.
"""

import struct
from collections.abc import Container

from quorate.kernel.checksum import crc32c
from quorate.kernel.ids import Offset, ProducerEpoch, ProducerId
from quorate.kernel.ports import Buffer, Disk
from quorate.records.batch import BatchHeader
from quorate.records.control import marker_of_batch
from quorate.records.errors import CorruptBatch, UnsupportedMagic
from quorate.storage.file_names import PRODUCER_SNAPSHOT, offsets_of, path_of
from quorate.storage.producer_state import NO_SEQUENCE, ProducerEntry, ProducerStates, SequencedBatch
from quorate.storage.segment import Segment, Segments
from quorate.storage.segment_recovery import find_unreadable

_VERSION = 1
_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
# Producer id and epoch, last sequence and offset, offset delta, timestamp, coordinator epoch, start of transaction.
_ENTRY = struct.Struct(">qhiqiqiq")
_NO_OFFSET = -1
_SEQUENCE_SPAN = 2**31
_IN_FLIGHT_BYTES = 1 << 20


def encode_snapshot(states: ProducerStates) -> bytes:
    entries = [_encode_entry(producer_id, entry) for producer_id, entry in states]
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _PREFIX.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(content: Buffer) -> ProducerStates:
    """Raises ``CorruptBatch`` on a file that is not a whole snapshot of this version."""
    if len(content) < _PREFIX.size + _COUNT.size:
        raise CorruptBatch("the producer snapshot is cut off")
    version, crc = _PREFIX.unpack_from(content)
    body = memoryview(content)[_PREFIX.size :]
    if version != _VERSION or crc != crc32c(body):
        raise CorruptBatch("the producer snapshot has another version or a wrong CRC")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptBatch("the producer snapshot has another number of entries than it declares")
    states = ProducerStates()
    for fields in _ENTRY.iter_unpack(body[_COUNT.size :]):
        _restore_entry(states, fields)
    return states


def _encode_entry(producer_id: ProducerId, entry: ProducerEntry) -> bytes:
    if entry.batches:
        last = entry.batches[-1]
        sequence, offset, delta = last.last_sequence, last.last_offset, last.last_offset - last.base_offset
    else:
        sequence, offset, delta = NO_SEQUENCE, Offset(_NO_OFFSET), 0
    return _ENTRY.pack(
        producer_id,
        entry.epoch,
        sequence,
        offset,
        delta,
        entry.last_timestamp_ms,
        entry.coordinator_epoch,
        _NO_OFFSET if entry.transaction_start is None else entry.transaction_start,
    )


def _restore_entry(states: ProducerStates, fields: tuple[int, ...]) -> None:
    producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator_epoch, transaction_start = fields
    batches = []
    if sequence != NO_SEQUENCE:
        base_sequence = (sequence - delta) % _SEQUENCE_SPAN
        batches = [SequencedBatch(base_sequence, sequence, Offset(offset - delta), Offset(offset), timestamp_ms)]
    entry = ProducerEntry(ProducerEpoch(epoch), timestamp_ms, batches)
    entry.coordinator_epoch = coordinator_epoch
    entry.transaction_start = None if transaction_start == _NO_OFFSET else Offset(transaction_start)
    states.restore(ProducerId(producer_id), entry)


def rebuild_producers(disk: Disk, directory: str, segments: Segments, *, snapshot_up_to: Offset) -> ProducerStates:
    """From the newest usable snapshot that is not above the offset. Adds to the indexes what was aborted since.

    A snapshot below the first segment is of no use: the batches between the two, which may have ended a transaction,
    were deleted.
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
    """The same, passing over damage; also returns whether there was none in what was needed."""
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
    """Restore the window of recent batches: a snapshot has one batch of each producer, a retry may be of another."""
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
    """The ranges of the last batches below ``end``, in order, about as much as producers can have in flight."""
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
