"""The producer-state snapshot file, in Kafka's format (version 1).

It keeps the last batch of each producer, as Kafka's does, and where its open transaction began; the window of earlier
batches comes back from the log.
"""

import struct

from crc32c import crc32c

from quorate.kernel.ids import Offset, ProducerEpoch, ProducerId
from quorate.kernel.ports import Buffer
from quorate.records.errors import CorruptBatch
from quorate.storage.producer_state import NO_SEQUENCE, ProducedBatch, ProducerEntry, ProducerStates

_VERSION = 1
_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
# Producer id and epoch, last sequence and offset, offset delta, timestamp, coordinator epoch, start of transaction.
_ENTRY = struct.Struct(">qhiqiqiq")
_NO_OFFSET = -1
_SEQUENCE_SPAN = 2**31


def encode_snapshot(states: ProducerStates) -> bytes:
    entries = [_encode_entry(producer_id, entry) for producer_id, entry in states]
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _PREFIX.pack(_VERSION, int(crc32c(body))) + body


def decode_snapshot(content: Buffer) -> ProducerStates:
    """Raises ``CorruptBatch`` on a file that is not a whole snapshot of this version."""
    if len(content) < _PREFIX.size + _COUNT.size:
        raise CorruptBatch("the producer snapshot is cut off")
    version, crc = _PREFIX.unpack_from(content)
    body = memoryview(content)[_PREFIX.size :]
    if version != _VERSION or crc != int(crc32c(body)):
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
        batches = [ProducedBatch(base_sequence, sequence, Offset(offset - delta), Offset(offset), timestamp_ms)]
    entry = ProducerEntry(ProducerEpoch(epoch), timestamp_ms, batches)
    entry.coordinator_epoch = coordinator_epoch
    entry.transaction_start = None if transaction_start == _NO_OFFSET else Offset(transaction_start)
    states.restore(ProducerId(producer_id), entry)
