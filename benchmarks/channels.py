"""One connection of the raw load: what it sends, and how it checks every answer.

A request is two buffers handed to ``sendmsg``, of which only the correlation id (and a fetch's offset) changes; answers
are read into one reused buffer and checked at fixed positions: correlation id, error code, offsets. A system cannot be
fast by being wrong.
"""

import ssl
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec
from crc32c import crc32c

from benchmarks import wire
from benchmarks.connection import RequestFailed
from benchmarks.streams import TlsStream, connect

ANSWERS_BUFFER_SIZE_BYTES = 64 * 1024
FETCH_MAX_BYTES = 1024 * 1024
# A batch above the limit still comes whole, and the answer has a few fields around it.
FETCH_BUFFER_SIZE_BYTES = 2 * FETCH_MAX_BYTES
# Between the first batches of two connections; odd, so that it fits any number of batches.
_STRIDE = 1021


class Batches(msgspec.Struct, frozen=True, kw_only=True):
    """Prepared batches that all have one size and one record count."""

    content: Sequence[bytes]
    records_per_batch: int
    #: Each as a Produce request ends, for all connections.
    rests: Sequence[memoryview]

    @property
    def size_bytes(self) -> int:
        return len(self.content[0])


class Channel(ABC):
    """A non-blocking connection with a queue of what the socket did not take yet."""

    def __init__(self, address: tuple[str, int], trust: ssl.SSLContext | None = None) -> None:
        self.socket = connect(address, trust)
        self.unsent: list[memoryview] = []
        self.deadline = 0.0

    @property
    def wants_room(self) -> bool:
        return bool(self.unsent) or (isinstance(self.socket, TlsStream) and self.socket.has_unsent)

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def on_readable(self) -> None: ...

    @abstractmethod
    def is_done(self) -> bool: ...

    def on_writable(self) -> None:
        try:
            sent = self.socket.sendmsg(self.unsent)
        except BlockingIOError:
            return
        while self.unsent and sent >= len(self.unsent[0]):
            sent -= len(self.unsent.pop(0))
        if sent:
            self.unsent[0] = self.unsent[0][sent:]

    def receive_into(self, buffer: memoryview) -> int:
        try:
            received = self.socket.recv_into(buffer)
        except BlockingIOError:
            return 0
        if not received:
            raise RequestFailed("the connection was closed in the middle of the load")
        return received


class ProduceChannel(Channel):
    """Writes to one partition with a fixed number of requests in flight."""

    def __init__(
        self,
        address: tuple[str, int],
        topic: str,
        partition: int,
        batches: Batches,
        *,
        depth: int,
        max_requests: int,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(address, trust)
        self._rests = batches.rests
        # Connections are not to send the same at the same time.
        self._first = partition * _STRIDE
        # One head per request in flight: a head is patched again only after its answer came.
        head, _ = wire.produce_request(topic, partition, batches.content[0])
        self._heads = [bytearray(head) for _ in range(depth)]
        self._layout = wire.ProduceResponseLayout(topic)
        self._answers = memoryview(bytearray(ANSWERS_BUFFER_SIZE_BYTES))
        self._filled = 0
        self._sent = 0
        self._max_requests = max_requests
        self._records_per_batch = batches.records_per_batch
        self.acknowledged = 0
        # The primer that made the partition ready is the first batch.
        self.next_offset = batches.records_per_batch

    def start(self) -> None:
        self._send(len(self._heads))

    def is_done(self) -> bool:
        return self.acknowledged == self._sent

    def on_readable(self) -> None:
        self._filled += self.receive_into(self._answers[self._filled :])
        answered = self._check_answers()
        room = min(answered, self._max_requests - self._sent)
        if room > 0 and time.perf_counter() < self.deadline:
            self._send(room)

    def _send(self, count: int) -> None:
        for correlation_id in range(self._sent, self._sent + count):
            head = self._heads[correlation_id % len(self._heads)]
            wire.patch_correlation_id(head, correlation_id)
            self.unsent.append(memoryview(head))
            self.unsent.append(self._rests[(self._first + correlation_id) % len(self._rests)])
        self._sent += count
        self.on_writable()

    def _check_answers(self) -> int:
        """Check the whole answers in the buffer, move what is left to its front, return how many there were."""
        size_bytes, fields = self._layout.size_bytes, self._layout.fields
        position = 0
        acknowledged_before = self.acknowledged
        while self._filled - position >= size_bytes:
            size, correlation_id, _, error_code, base_offset = fields.unpack_from(self._answers, position)
            if error_code or size != size_bytes - 4:
                raise RequestFailed(f"Produce answered error code {error_code} in {size} bytes")
            if correlation_id != self.acknowledged or base_offset != self.next_offset:
                raise RequestFailed(f"answer {correlation_id} at offset {base_offset}, expected {self.next_offset}")
            self.acknowledged += 1
            self.next_offset += self._records_per_batch
            position += size_bytes
        if position:
            self._answers[: self._filled - position] = self._answers[position : self._filled]
            self._filled -= position
        return self.acknowledged - acknowledged_before


class FetchChannel(Channel):
    """Reads one partition from its start to its end and over again, one request in flight, as a consumer does."""

    def __init__(
        self,
        address: tuple[str, int],
        topic: str,
        partition: int,
        batches: Batches,
        end_offset: int,
        *,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(address, trust)
        self._request = wire.FetchRequest(topic, partition, FETCH_MAX_BYTES)
        self._layout = wire.FetchResponseLayout(topic)
        self._answer = memoryview(bytearray(FETCH_BUFFER_SIZE_BYTES))
        self._filled = 0
        self._in_flight = False
        self._fetch_offset = 0
        self._end_offset = end_offset
        self._batch_size_bytes = batches.size_bytes
        self._records_per_batch = batches.records_per_batch
        self.requests = 0
        self.batches_received = 0

    def start(self) -> None:
        self._send()

    def is_done(self) -> bool:
        return not self._in_flight

    def on_readable(self) -> None:
        self._filled += self.receive_into(self._answer[self._filled :])
        if self._filled < 4 or self._filled < 4 + struct.unpack_from(">i", self._answer)[0]:
            return
        self._in_flight = False
        self._take_answer()
        if time.perf_counter() < self.deadline:
            self._send()

    def _send(self) -> None:
        self._request.patch(self.requests, self._fetch_offset)
        self.requests += 1
        self._filled = 0
        self._in_flight = True
        self.unsent.append(memoryview(self._request.frame))
        self.on_writable()

    def _take_answer(self) -> None:
        _, correlation_id, error_code, partition_error_code, _ = self._layout.fields.unpack_from(self._answer)
        if error_code or partition_error_code or correlation_id != self.requests - 1:
            raise RequestFailed(f"Fetch answered error codes {error_code} and {partition_error_code}")
        start, length = self._layout.records_span(self._answer)
        # A broker may cut the last batch off where the limit is: only whole ones count, as for any consumer.
        count = length // self._batch_size_bytes
        if count == 0:
            raise RequestFailed(f"Fetch at offset {self._fetch_offset} of {self._end_offset} brought no whole batch")
        last = start + (count - 1) * self._batch_size_bytes
        self._expect_batch(start, self._fetch_offset)
        self._expect_batch(last, self._fetch_offset + (count - 1) * self._records_per_batch)
        if self.requests == 1:
            self._expect_checksum(last)
        self.batches_received += count
        self._fetch_offset += count * self._records_per_batch
        if self._fetch_offset >= self._end_offset:
            self._fetch_offset = 0

    def _expect_batch(self, position: int, base_offset: int) -> None:
        found, length = struct.unpack_from(">qi", self._answer, position)
        if (found, length) != (base_offset, self._batch_size_bytes - 12):
            raise RequestFailed(f"Fetch brought a batch at offset {found}, expected {base_offset}")

    def _expect_checksum(self, position: int) -> None:
        (expected,) = struct.unpack_from(">I", self._answer, position + 17)
        if crc32c(self._answer[position + 21 : position + self._batch_size_bytes]) != expected:
            raise RequestFailed("Fetch brought a batch with a wrong checksum")
