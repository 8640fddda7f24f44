"""The receiving side of a connection: one buffer that is read into, and frames cut from it in place. Pure.

A frame is a big-endian int32 length and that many bytes. Frames are handed out as writable views of the buffer: they
hold until the next read. A read takes several frames where they have come, as each read costs, and so does each reply
that leaves alone. The buffer has room for a whole frame behind such a read, so that a frame that came in part seldom
has to be moved. Of a large frame only its own remainder is asked for: it is never moved once the buffer has grown.
"""

from struct import Struct

_LENGTH = Struct(">i")

#: Room for many small requests in one read.
_INITIAL_BYTES = 64 * 1024
#: The most that is asked for at once, unless a frame was larger: five requests with batches of 64 KiB, which is what a
#: producer has under way. One read then takes them all, and one write answers them.
_READ_BYTES = 336 * 1024
#: Frames from this size on make the buffer grow to where it takes several of them.
_SIZABLE_FRAME_BYTES = 16 * 1024
#: From this size on, an incomplete frame is read alone.
_LARGE_FRAME_BYTES = 128 * 1024
#: A buffer that grew beyond this for one large frame is let go again.
_KEPT_BYTES = 4 * 1024 * 1024


class FrameTooLarge(Exception):
    """The peer announced a frame that is negative or above the limit."""

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"frame of {length} bytes announced, the limit is {limit}")


class ReceiveBuffer:
    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._view = memoryview(bytearray(_INITIAL_BYTES))
        self._start = 0  # First byte not yet handed out.
        self._end = 0  # End of what has been received.
        self._read_bytes = _READ_BYTES  # Or the largest frame that the buffer grew for: one read for each of its like.
        self._needed = 4  # Bytes from _start on that make the next step possible: a length, then a whole frame.

    @property
    def is_empty(self) -> bool:
        return self._start == self._end

    def writable(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._view) > _KEPT_BYTES >= self._needed:
                self._view = memoryview(bytearray(_INITIAL_BYTES))
                self._read_bytes = _READ_BYTES
        if self._start + self._needed > len(self._view):
            self._make_room()
        if self._needed >= _LARGE_FRAME_BYTES:
            return self._view[self._end : self._start + self._needed]
        return self._view[self._end : self._end + self._read_bytes]

    def received(self, count: int) -> None:
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame, without its length; None until more has come."""
        available = self._end - self._start
        if available < 4:
            self._needed = 4
            return None
        (length,) = _LENGTH.unpack_from(self._view, self._start)
        if not 0 <= length <= self._max_frame_bytes:
            raise FrameTooLarge(length, self._max_frame_bytes)
        if available < 4 + length:
            self._needed = 4 + length
            return None
        begin = self._start + 4
        self._start = begin + length
        self._needed = 4
        return self._view[begin : self._start]

    def _make_room(self) -> None:
        """Move the incomplete frame to the front, of a larger buffer where it needs one."""
        pending = self._view[self._start : self._end]
        wanted = self._needed + _READ_BYTES if self._needed >= _SIZABLE_FRAME_BYTES else self._needed
        if wanted > len(self._view):
            self._view = memoryview(bytearray(wanted))
            self._read_bytes = max(_READ_BYTES, self._needed)
        self._view[: len(pending)] = pending
        self._start, self._end = 0, len(pending)
