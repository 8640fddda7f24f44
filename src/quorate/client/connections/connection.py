"""One connection to a broker, shared by threads: several requests in flight, answers in the order of the requests.

There is no reader thread. Whoever waits for an answer reads: the first to wait reads frames for everybody until its own
has come, then the next one takes over. So a connection with a single user never pays for a thread switch. Who waits for
the first of several answers polls their connections (``first_ready``, ``first_to_come``).

A request that is not answered in time ends the connection, as its answer could otherwise be taken for another's.
"""

import select
import threading
from collections import deque
from collections.abc import Sequence
from typing import Final, Generic, TypeVar, cast

from quorate.client.connections.stream import DeadlinePassed, Stream
from quorate.client.connections.versions import BrokerVersions, before_negotiation
from quorate.client.errors import ConnectionLost, RequestTimedOut
from quorate.client.retries import MonotonicClock
from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError
from quorate.protocol.apis import find_api
from quorate.protocol.codec import decode_part
from quorate.protocol.errors import ProtocolError
from quorate.protocol.frames import decode_response_correlation_id, encode_request
from quorate.protocol.primitives import skip_tagged_fields
from quorate.protocol.schema import Request, Response

MIN_BUFFER_BYTES = 64 * 1024
DEFAULT_KEPT_BYTES = 64 * 1024 * 1024


class ReceiveBuffers:
    """Memory for large answers, used again and again: fresh pages cost more than copying bytes into warm ones.

    A buffer belongs to whoever took it until it is given back; one that is never given back is simply collected.
    """

    def __init__(self, kept_bytes: int = DEFAULT_KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._free: list[bytearray] = []
        self._free_bytes = 0
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> bytearray:
        """A buffer of at least this size; its content is whatever was there before."""
        with self._lock:
            fitting = [index for index, buffer in enumerate(self._free) if len(buffer) >= size_bytes]
            if fitting:
                buffer = self._free.pop(min(fitting, key=lambda index: len(self._free[index])))
                self._free_bytes -= len(buffer)
                return buffer
        # Powers of two, so that answers of slightly different sizes share their buffers.
        return bytearray(max(MIN_BUFFER_BYTES, 1 << (size_bytes - 1).bit_length()))

    def give_back(self, buffer: bytearray) -> None:
        """Nobody may look at the buffer any more. The smallest ones go when more is free than is worth keeping."""
        with self._lock:
            self._free.append(buffer)
            self._free_bytes += len(buffer)
            while self._free_bytes > self._kept_bytes:
                smallest = min(range(len(self._free)), key=lambda index: len(self._free[index]))
                self._free_bytes -= len(self._free.pop(smallest))


R = TypeVar("R", bound=Response)

_SIZE_BYTES: Final = 4
_FRAME_START_BYTES: Final = 8  # Size and correlation id.
_CORRELATION_SPAN: Final = 2**31
MAX_FRAME_BYTES: Final = 1 << 30
_TLS_ALERT: Final = b"\x15\x03"


class PendingResponse(Generic[R]):
    """A request that was sent and is not answered yet."""

    def __init__(
        self, correlation_id: int, response_type: type[R], version: int, deadline_ms: int, timeout_ms: int
    ) -> None:
        self.correlation_id = correlation_id
        self.response_type = response_type
        self.version = version
        self.deadline_ms = deadline_ms
        self.timeout_ms = timeout_ms
        self.frame: memoryview | None = None
        self.buffer: bytearray | None = None
        self.failure: QuorateError | None = None
        self.is_abandoned = False

    @property
    def is_done(self) -> bool:
        return self.frame is not None or self.failure is not None

    @property
    def api_name(self) -> str:
        api = find_api(self.response_type.API_KEY)
        assert api is not None
        return api.name


class Connection:
    def __init__(
        self, stream: Stream, *, client_id: str, request_timeout_ms: int, buffers: ReceiveBuffers, clock: MonotonicClock
    ) -> None:
        self.versions: BrokerVersions = before_negotiation(stream.address)
        #: When the broker will end it, as the credentials expire; None for never.
        self.expires_ms: int | None = None
        self._stream = stream
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._buffers = buffers
        self._clock = clock
        self._sending = threading.Lock()
        self._next_correlation_id = 0
        # Guards what follows; notified when an answer was read, the reader's role is free, or the connection ended.
        self._changed = threading.Condition()
        self._in_flight: deque[PendingResponse[Response]] = deque()
        self._has_reader = False
        self._failure: QuorateError | None = None
        self._frame_start = memoryview(bytearray(_FRAME_START_BYTES))

    @property
    def address(self) -> Address:
        return self._stream.address

    @property
    def is_open(self) -> bool:
        return self._failure is None

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def fileno(self) -> int:
        return self._stream.fileno()

    def send(
        self,
        request: Request,
        response_type: type[R],
        version: int,
        *,
        timeout_ms: int | None = None,
        pooled: bool = False,
    ) -> PendingResponse[R]:
        """Send without waiting. A ``pooled`` answer is read into a buffer that is used again after ``release``."""
        timeout_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        with self._sending:
            correlation_id = self._next_correlation_id
            self._next_correlation_id = (correlation_id + 1) % _CORRELATION_SPAN
            frame = encode_request(correlation_id, self._client_id, request, version)
            deadline_ms = self._clock.now_ms() + timeout_ms
            pending = PendingResponse(correlation_id, response_type, version, deadline_ms, timeout_ms)
            if pooled:
                pending.buffer = bytearray()
            with self._changed:
                if self._failure is not None:
                    raise ConnectionLost(self.address, "it was closed")
                self._in_flight.append(cast(PendingResponse[Response], pending))
            try:
                self._stream.send(frame, deadline_ms)
            except BaseException as error:
                self._end(self._as_failure(error, pending))
                raise self._as_failure(error, pending) from error
        return pending

    def wait(self, pending: PendingResponse[R], *, has_waited: bool = False) -> R:
        """The answer, decoded. Its records, if any, are views of memory that ``release`` gives back.

        With ``has_waited`` the timeout has passed elsewhere: the answer is taken if it is there.
        """
        frame = self.wait_for_frame(pending, 0 if has_waited else pending.timeout_ms)
        try:
            return _decode(pending.response_type, frame, pending.version)
        except ProtocolError as error:
            self._end(ConnectionLost(self.address, f"its answer to {pending.api_name} is malformed: {error}"))
            raise

    def wait_for_frame(self, pending: PendingResponse[R], timeout_ms: int | None = None) -> memoryview:
        # An answer that nobody waited for may lie in the socket for long: only the waiting counts.
        pending.deadline_ms = self._clock.now_ms() + (pending.timeout_ms if timeout_ms is None else timeout_ms)
        while not pending.is_done:
            if self._become_reader(pending):
                self._read_until(pending)
        if pending.failure is not None:
            raise pending.failure
        assert pending.frame is not None
        return pending.frame

    def ask(self, request: Request, response_type: type[R], version: int, *, timeout_ms: int | None = None) -> R:
        return self.wait(self.send(request, response_type, version, timeout_ms=timeout_ms))

    def poll_ready(self) -> bool:
        """Whether bytes wait that the system does not report as readable."""
        return self._stream.has_buffered_bytes()

    def release(self, pending: PendingResponse[R]) -> None:
        """Nobody looks at the answer's memory any more; an answer that is still to come will be thrown away."""
        with self._changed:
            pending.is_abandoned = True
            if not pending.is_done:
                return
            buffer, pending.buffer = pending.buffer, None
        if buffer:
            self._buffers.give_back(buffer)

    def close(self) -> None:
        self._end(ConnectionLost(self.address, "this client closed it"))

    def _become_reader(self, pending: PendingResponse[R]) -> bool:
        """Wait until the answer is there (False) or nobody reads and it is this thread's turn to do so (True)."""
        with self._changed:
            while not pending.is_done and self._has_reader:
                remaining_ms = pending.deadline_ms - self._clock.now_ms()
                if remaining_ms <= 0:
                    break
                self._changed.wait(remaining_ms / 1000)
            if pending.is_done:
                return False
            if not self._has_reader:
                self._has_reader = True
                return True
        self._time_out(pending)
        return False

    def _read_until(self, pending: PendingResponse[R]) -> None:
        try:
            while not pending.is_done:
                self._read_frame(pending.deadline_ms)
        except DeadlinePassed:
            self._time_out(pending)
        except BaseException as error:
            self._end(self._as_failure(error, pending))
            if not isinstance(error, QuorateError):
                raise
        finally:
            with self._changed:
                self._has_reader = False
                self._changed.notify_all()

    def _read_frame(self, deadline_ms: int) -> None:
        self._receive_frame_start(deadline_ms)
        size = int.from_bytes(self._frame_start[:4], signed=True)
        correlation_id = decode_response_correlation_id(self._frame_start[4:])
        with self._changed:
            if self._failure is not None:
                raise self._failure
            receiver = self._in_flight.popleft() if self._in_flight else None
        try:
            self._check_start(size, correlation_id, receiver)
            assert receiver is not None
            frame = self._memory_for(receiver, size)
            frame[:4] = self._frame_start[4:]
            self._stream.receive_into(frame[4:], deadline_ms)
        except BaseException:
            if receiver is not None:
                with self._changed:
                    self._in_flight.appendleft(receiver)
            raise
        with self._changed:
            receiver.frame = frame
            was_abandoned = receiver.is_abandoned
            if len(self._in_flight):
                self._changed.notify_all()
        if was_abandoned:
            self.release(receiver)

    def _receive_frame_start(self, deadline_ms: int) -> None:
        self._frame_start[:2] = bytes(2)
        try:
            self._stream.receive_into(self._frame_start, deadline_ms)
        finally:
            # An alert is shorter than a frame's start: the connection may end inside it.
            if bytes(self._frame_start[:2]) == _TLS_ALERT:
                raise ConnectionLost(self.address, "it speaks TLS; set security.protocol to SSL or SASL_SSL")

    def _check_start(self, size: int, correlation_id: int, receiver: PendingResponse[Response] | None) -> None:
        if receiver is None or size < 4 or size > MAX_FRAME_BYTES:
            raise ConnectionLost(self.address, f"it sent a frame of {size} bytes, which no Kafka broker does")
        if correlation_id != receiver.correlation_id:
            raise ConnectionLost(
                self.address, f"it answered request {correlation_id} where {receiver.correlation_id} was next"
            )

    def _memory_for(self, receiver: PendingResponse[Response], size: int) -> memoryview:
        if receiver.buffer is None:
            return memoryview(bytearray(size))
        receiver.buffer = self._buffers.take(size)
        return memoryview(receiver.buffer)[:size]

    def _time_out(self, pending: PendingResponse[R]) -> None:
        failure = RequestTimedOut(self.address, pending.api_name, pending.timeout_ms)
        with self._changed:
            if pending.is_done:
                return
            pending.failure = failure
        self._end(ConnectionLost(self.address, str(failure)))

    def _as_failure(self, error: BaseException, pending: PendingResponse[R]) -> QuorateError:
        match error:
            case QuorateError():
                return error
            case DeadlinePassed():
                return RequestTimedOut(self.address, pending.api_name, pending.timeout_ms)
            case _:
                return ConnectionLost(self.address, f"interrupted by {type(error).__name__}")

    def _end(self, failure: QuorateError) -> None:
        """Fail whatever is in flight. The first reason is the one that counts."""
        with self._changed:
            if self._failure is None:
                self._failure = failure
            for pending in self._in_flight:
                if not pending.is_done:
                    pending.failure = self._failure
            self._in_flight.clear()
            self._changed.notify_all()
        self._stream.close()


def _decode(response_type: type[R], frame: memoryview, version: int) -> R:
    """The answer in a frame. Bytes after it are passed over, as other clients do: some brokers leave one too many."""
    position = _FRAME_START_BYTES - _SIZE_BYTES
    if version >= response_type.FLEXIBLE_FROM:
        try:
            position = skip_tagged_fields(frame, position)
        except IndexError:
            raise ProtocolError("the header is longer than its frame") from None
    return decode_part(response_type, frame, version, position)[0]


#: Another thread may read our answer from a shared connection, which no poll reports.
_RECHECK_MS: Final = 20


def first_ready(
    flights: Sequence[tuple[Connection, PendingResponse[R]]], clock: MonotonicClock, timeout_ms: int
) -> int | None:
    """The index of one whose answer has come or is coming in; None after the timeout.

    A single one is named at once: waiting for its answer takes no longer than the timeout anyway.
    """
    return 0 if len(flights) == 1 else first_to_come(flights, clock, timeout_ms)


def first_to_come(
    flights: Sequence[tuple[Connection, PendingResponse[R]]], clock: MonotonicClock, timeout_ms: int
) -> int | None:
    """The same, but never before an answer has come or is coming in."""
    deadline_ms = clock.now_ms() + timeout_ms
    while clock.now_ms() < deadline_ms:
        for index, (connection, pending) in enumerate(flights):
            if pending.is_done or not connection.is_open or connection.poll_ready():
                return index
        readable = _poll([connection for connection, _ in flights])
        for index, (connection, _) in enumerate(flights):
            if connection.fileno() in readable:
                return index
    return None


def _poll(connections: Sequence[Connection]) -> set[int]:
    waiter = select.poll()
    for file_number in {connection.fileno() for connection in connections} - {-1}:
        waiter.register(file_number, select.POLLIN)
    return {file_number for file_number, _ in waiter.poll(_RECHECK_MS)}
