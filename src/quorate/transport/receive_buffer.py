"""The receiving side of a connection: what was read, and frames cut from it in place.

A frame is a big-endian int32 length and that many bytes. Frames are handed out as writable views: they hold until their
handler returns. A read takes several frames where they have come, as each read costs, and so does each reply that
leaves alone. It goes into the memory that all connections share; what is left of it is moved from there when another
connection reads. So a connection that has sent nothing, or only whole frames, needs no memory.

The rest of a frame is read behind what has come of it, in the shared memory again while that is small, and else where
the frame stays. Memory for it grows with what has come, whatever was announced. A connection whose frames are large
keeps it for the next one, until others need it.
"""

from collections.abc import Callable
from struct import Struct

from quorate.transport.receive_memory import (
    READ_BYTES,
    SHORT_READ_BYTES,
    SMALL_FRAME_BYTES,
    GrowingMemory,
    ReceiveMemory,
)

_LENGTH = Struct(">i")

#: From this size on, an incomplete frame is read alone.
_LARGE_FRAME_BYTES = SMALL_FRAME_BYTES
#: The most that is read at once of a large frame.
_LARGEST_READ_BYTES = 2 * 1024 * 1024
#: The first memory of a frame that comes slowly, and of a large one that does not: reserved, but not in use yet.
_FIRST_BYTES = 1024
_FIRST_LARGE_BYTES = 2 * 1024 * 1024
#: Memory that grew beyond this for one large frame is let go at once.
_KEPT_BYTES = 4 * 1024 * 1024
_NOTHING = -1


class FrameTooLarge(Exception):
    """The peer announced a frame that is negative or above the limit."""

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"frame of {length} bytes announced, the limit is {limit}")
        self.length = length


class ReceiveBuffer:
    def __init__(
        self, max_frame_bytes: int, memory: ReceiveMemory | None = None, on_memory: Callable[[], None] | None = None
    ) -> None:
        """``on_memory`` is called when it may be that a frame can be read on that had to wait for memory."""
        self.max_frame_bytes = max_frame_bytes
        self._memory = memory or ReceiveMemory(shared_bytes=_private_bytes(max_frame_bytes))
        self._on_memory = on_memory
        self._shared = self._view = self._memory.shared
        self._own: GrowingMemory | None = None
        self._start = 0  # First byte not yet handed out.
        self._end = 0  # End of what has been received.
        self._needed = 4  # Bytes from _start on that make the next step possible: a length, then a whole frame.
        self._last_read = 0
        self._latest = _NOTHING  # Length of the last frame that was handed out since the last settlement.
        self._came_in_part = False  # What is pending, or was handed out last.
        self._like_last = 0  # What one read has to take of a connection that sends one large frame like another.

    @property
    def is_empty(self) -> bool:
        return self._start == self._end

    @property
    def pending_bytes(self) -> int:
        """Received, and not yet handed out as a frame."""
        return self._end - self._start

    @property
    def missing_bytes(self) -> int:
        """What has to come until something can be done with what is pending."""
        return max(0, self._needed - self.pending_bytes) if self._start != self._end else 0

    def writable(self) -> memoryview:
        """Where the next bytes go; never empty."""
        memory = self._memory
        if memory.occupant is not None and memory.occupant is not self:
            memory.occupant.leave_shared()
        is_short = memory.limit_bytes >= 0 and memory.is_short
        pending = self._end - self._start
        if not pending:
            self._start = self._end = 0
            if self._own is None:
                return self._shared[: SHORT_READ_BYTES if is_short else READ_BYTES]
            return self._view[: self._like_last]
        self._came_in_part = True
        if self._own is None and pending >= _LARGE_FRAME_BYTES:
            self.leave_shared()
        if self._own is None or (self._is_small(pending) and not is_short):
            self._put_in_shared(pending)
        elif self._end == len(self._view):
            self._make_room()
        return self._view[self._end : self._end + self._most(is_short=is_short)]

    def _is_small(self, pending: int) -> bool:
        """Whether what is pending came in one read, and is of no large frame that there is memory for already."""
        assert self._own is not None, "what is in the shared memory stays there"
        if self._own.is_large and self._needed >= _LARGE_FRAME_BYTES:
            return False
        return pending <= self._last_read and pending < _LARGE_FRAME_BYTES

    def _most(self, *, is_short: bool) -> int:
        if is_short and not self._memory.may_read(self):
            return SHORT_READ_BYTES
        if self._needed >= _LARGE_FRAME_BYTES:
            return min(self._start + self._needed - self._end, _LARGEST_READ_BYTES)
        return READ_BYTES

    def received(self, count: int) -> None:
        self._end += count
        self._last_read = count
        own = self._own
        if own is not None:
            self._memory.use_spare(self)
            if self._end > own.used_bytes:
                self._memory.hold(self._end - own.used_bytes)
                own.used_bytes = self._end

    def next_frame(self) -> memoryview | None:
        """The next whole frame, without its length; None until more has come."""
        available = self._end - self._start
        if available < 4:
            self._needed = 4
            return None
        (length,) = _LENGTH.unpack_from(self._view, self._start)
        if not 0 <= length <= self.max_frame_bytes:
            raise FrameTooLarge(length, self.max_frame_bytes)
        if available < 4 + length:
            self._needed = 4 + length
            return None
        self._latest = length
        begin = self._start + 4
        self._start = begin + length
        self._needed = 4
        return self._view[begin : self._start]

    def settle(self) -> None:
        """Keep what is left: to be called when all frames were taken that are taken for now, before anybody reads."""
        latest, self._latest = self._latest, _NOTHING
        if latest != _NOTHING and self._came_in_part:
            self._came_in_part = False
            self._memory.completed += 1
            if self._memory.has_waiting:
                self._memory.leave(self)
        if self._own is None:
            if self._start == self._end:
                self._memory.occupant = None
            else:
                self._memory.occupant = self
                if self._needed >= _LARGE_FRAME_BYTES or self._memory.is_short:
                    self.leave_shared()
        elif self._start == self._end:
            if latest >= _LARGE_FRAME_BYTES and self._own.is_large and len(self._view) <= _KEPT_BYTES:
                self._like_last = 4 + latest
                self._memory.set_spare(self)
            else:
                self.let_go()

    def may_read(self) -> bool:
        """Whether there is memory for the rest of a frame. Where not, ``on_memory`` tells when to ask again."""
        return self._start == self._end or self._memory.may_read(self)

    def stop_waiting(self) -> None:
        """Nothing is read for another reason: others shall not wait behind this."""
        self._memory.leave(self)

    def close(self) -> None:
        """Nothing that was read is wanted any more."""
        self._start = self._end = 0
        self._needed = 4
        self.let_go()
        self._memory.leave(self)
        self._on_memory = None  # It knows the connection: both are freed without a collection.

    def let_go(self) -> None:
        self._memory.use_spare(self)
        if self._memory.occupant is self:
            self._memory.occupant = None
        own, self._own = self._own, None
        self._view = self._shared
        if own is not None:
            self._memory.hold(-own.used_bytes)

    def memory_free(self) -> None:
        if self._on_memory is not None:
            self._on_memory()

    def leave_shared(self) -> None:
        pending = self._end - self._start
        capacity = pending
        if self._needed >= _LARGE_FRAME_BYTES <= pending:
            # Much of it has come in one read: so will the rest.
            capacity = min(self._needed, max(_FIRST_LARGE_BYTES, 2 * pending))
        self._own = GrowingMemory(self._view[self._start : self._end], capacity)
        self._memory.occupant = None
        self._memory.hold(self._own.used_bytes)
        self._view = self._own.view
        self._start, self._end = 0, pending

    def _put_in_shared(self, pending: int) -> None:
        """To the front of the shared memory, unless it is there and has room for the rest of its frame."""
        if self._own is None and max(self._start + self._needed, self._end + 1) <= len(self._shared):
            return
        self._shared[:pending] = self._view[self._start : self._end]
        self._start, self._end = 0, pending
        self.let_go()
        self._memory.occupant = self

    def _make_room(self) -> None:
        """Move the incomplete frame to the front, of larger memory where it needs more."""
        own = self._own
        assert own is not None, "what is pending was not settled"
        pending = self._end - self._start
        capacity = max(self._needed, pending + 1)
        if capacity > len(self._view):
            capacity = min(capacity, max(2 * pending, _FIRST_BYTES))
        used_bytes = own.used_bytes
        own.keep(self._start, self._end, capacity)
        self._memory.hold(own.used_bytes - used_bytes)
        self._view = own.view
        self._start, self._end = 0, pending


def _private_bytes(max_frame_bytes: int) -> int:
    """What a connection reads into that shares nothing with others: room for several of its frames."""
    return min(READ_BYTES, max(2 * max_frame_bytes, 64 * 1024))
