"""The requests of the load, read and answered with as little work as they allow.

Only what the load sends is understood: Produce of one batch to one partition, and the two requests that make and remove
a topic. Nothing is checked, of a batch only its number of records is read, and offsets are counted from there.
"""

import struct
from typing import Final, NamedTuple

from benchmarks import wire
from benchmarks.tls_limit.logs import Log, Logs

_BEHIND_CORRELATION_ID: Final = wire.CORRELATION_ID_POSITION + 4
_RECORD_COUNT_POSITION: Final = 57
_TAGS_AFTER_BATCH: Final = 3
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class Answer(NamedTuple):
    frame: bytes
    #: What has to be as durable as asked for before the answer may leave.
    written: Log | None = None


class _Route(NamedTuple):
    """What the Produce requests to one partition have in common."""

    head: bytes  # Behind the correlation id, up to the batch.
    batch_position: int
    log: Log
    answer: bytearray
    base_offset_position: int


class Requests:
    """Of one connection, which writes to one partition, so only its first request is read field by field."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._route: _Route | None = None

    def answer(self, frame: memoryview) -> Answer:
        """``frame`` begins with its size."""
        route = self._route
        if route is not None and bytes(frame[_BEHIND_CORRELATION_ID : route.batch_position]) == route.head:
            return _produce(frame, route)
        (api_key,) = _INT16.unpack_from(frame, 4)
        if api_key != wire.PRODUCE:
            return self._administer(api_key, frame)
        self._route = _read_route(frame, self._logs)
        return _produce(frame, self._route)

    def _administer(self, api_key: int, frame: memoryview) -> Answer:
        position = _behind_client_id(frame) + 4  # One topic.
        (length,) = _INT16.unpack_from(frame, position)
        topic = bytes(frame[position + 2 : position + 2 + length]).decode()
        message = b""
        if api_key == wire.CREATE_TOPICS:
            message = _INT16.pack(-1)
        elif api_key == wire.DELETE_TOPICS:
            self._logs.remove(topic)
        else:
            raise ValueError(f"the load does not send requests with API key {api_key}")
        # Throttle time, one topic, its name, no error.
        content = bytes(4) + _INT32.pack(1) + wire.string(topic) + bytes(2) + message
        correlation_id = bytes(frame[wire.CORRELATION_ID_POSITION : _BEHIND_CORRELATION_ID])
        return Answer(_INT32.pack(4 + len(content)) + correlation_id + content)


def _produce(frame: memoryview, route: _Route) -> Answer:
    start = route.batch_position
    (records,) = _INT32.unpack_from(frame, start + _RECORD_COUNT_POSITION)
    base_offset = route.log.append(frame[start:-_TAGS_AFTER_BATCH], records)
    answer = route.answer
    answer[4:8] = frame[wire.CORRELATION_ID_POSITION : _BEHIND_CORRELATION_ID]
    _INT64.pack_into(answer, route.base_offset_position, base_offset)
    return Answer(bytes(answer), route.log)


def _read_route(frame: memoryview, logs: Logs) -> _Route:
    position = _behind_client_id(frame) + 1 + 1 + 2 + 4  # Tags, no transactional id, acks, timeout.
    _, position = wire.read_uvarint(frame, position)  # One topic.
    length, position = wire.read_uvarint(frame, position)
    topic = bytes(frame[position : position + length - 1]).decode()
    _, position = wire.read_uvarint(frame, position + length - 1)  # One partition.
    (partition,) = _INT32.unpack_from(frame, position)
    _, position = wire.read_uvarint(frame, position + 4)  # The batch's size.
    layout = wire.ProduceResponseLayout(topic)
    return _Route(
        head=bytes(frame[_BEHIND_CORRELATION_ID:position]),
        batch_position=position,
        log=logs.log(topic, partition),
        answer=_produce_answer(topic, partition, layout),
        base_offset_position=layout.fields.size - 8,
    )


def _produce_answer(topic: str, partition: int, layout: wire.ProduceResponseLayout) -> bytearray:
    """But for correlation id and base offset."""
    # Correlation id, tags, one topic, its name, one partition: its index, no error, base offset.
    content = bytes(4) + b"\0\2" + wire.compact_string(topic) + b"\2" + _INT32.pack(partition) + bytes(2) + bytes(8)
    # Append time, log start offset, no record errors, no message, tags twice, throttle time, tags.
    content += _INT64.pack(-1) + bytes(8) + b"\1\0\0\0" + bytes(4) + b"\0"
    assert 4 + len(content) == layout.size_bytes
    return bytearray(_INT32.pack(len(content)) + content)


def _behind_client_id(frame: memoryview) -> int:
    (length,) = _INT16.unpack_from(frame, _BEHIND_CORRELATION_ID)
    return _BEHIND_CORRELATION_ID + 2 + int(length)
