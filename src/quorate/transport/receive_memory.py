"""The memory that all connections of a listener together read into, and its limit.

Reads go into one buffer that all connections share, since what comes whole is served at once. Only what is left of a
read when another connection reads, a request that came in part or one that has to wait, is kept by its connection, and
counted here. Once that is as much as the limit, connections with a request in part stop reading, and queue. The first
of the queue may go beyond the limit until its request is whole, however large it is: so there is no deadlock, and never
much more than the limit and one request. Requests that come whole in a short read are served all the same.

What a connection keeps lies in a ``GrowingMemory``.
"""

import mmap
from collections import OrderedDict
from contextlib import suppress
from typing import Protocol

#: The most that is asked for at once: five requests with batches of 64 KiB, which is what a producer has under way.
#: One read then takes them all, and one write answers them.
READ_BYTES = 336 * 1024
#: Small frames are completed in the shared buffer, in front of what is read next.
SMALL_FRAME_BYTES = 128 * 1024
#: The most that is asked for while memory is short.
SHORT_READ_BYTES = 2 * 1024
#: Of those that wait, one reads again for each time that this much is free.
_WAKE_BYTES = 256 * 1024
NO_LIMIT = -1


class Holder(Protocol):
    """A connection's buffer."""

    def leave_shared(self) -> None:
        """Take what is left there elsewhere: another connection is about to read."""
        ...

    def let_go(self) -> None:
        """Give back memory that holds nothing."""
        ...

    def memory_free(self) -> None:
        """It may be that the holder can read on: it should ask again."""
        ...


class ReceiveMemory:
    """Belongs to one loop."""

    def __init__(self, limit_bytes: int = NO_LIMIT, shared_bytes: int = READ_BYTES) -> None:
        self.limit_bytes = limit_bytes
        #: Who has something in the shared buffer.
        self.occupant: Holder | None = None
        self.shared = memoryview(bytearray(shared_bytes))
        self.held_bytes = 0
        #: How many requests there were that had come in parts and are whole.
        self.completed = 0
        #: Who may go beyond the limit.
        self.favoured: Holder | None = None
        self._waiting: OrderedDict[Holder, None] = OrderedDict()
        #: Who has memory that holds nothing, for its next large request, and since which call of ``shrink``.
        self._spare: OrderedDict[Holder, int] = OrderedDict()
        self._shrinks = 0

    @property
    def has_waiting(self) -> bool:
        """Whether anybody is held up, or would be but for being the first."""
        return bool(self._waiting) or self.favoured is not None

    @property
    def is_short(self) -> bool:
        return 0 <= self.limit_bytes <= self.held_bytes and not self._reclaim()

    def hold(self, size_bytes: int) -> None:
        """Count memory that was taken, or given back."""
        self.held_bytes += size_bytes
        if size_bytes < 0 and self._waiting:
            self._wake()

    def may_read(self, holder: Holder) -> bool:
        """Whether the holder may read the rest of a request. Where not it is queued, and told when to ask again."""
        if holder is self.favoured:
            return True
        if self.is_short and (self.favoured is not None or next(iter(self._waiting), holder) is not holder):
            self._waiting[holder] = None
            if self.favoured is None:
                self._wake()
            return False
        if self.is_short:
            self.favoured = holder
        self._waiting.pop(holder, None)
        return True

    def leave(self, holder: Holder) -> None:
        """The holder reads nothing for now: its request is whole, or waits for something else, or it is gone."""
        self._waiting.pop(holder, None)
        if self.favoured is holder:
            self.favoured = None
        if self._waiting:
            self._wake()

    def set_spare(self, holder: Holder) -> None:
        self._spare[holder] = self._shrinks

    def use_spare(self, holder: Holder) -> None:
        self._spare.pop(holder, None)

    def shrink(self) -> None:
        """To be called from time to time: takes back what was spare since the last but one call."""
        for holder in [holder for holder, since in self._spare.items() if since < self._shrinks]:
            holder.let_go()
        self._shrinks += 1

    @property
    def has_spare(self) -> bool:
        return bool(self._spare)

    def _reclaim(self) -> bool:
        """Take back what is spare, the longest unused first, until there is enough."""
        while self._spare and self.held_bytes >= self.limit_bytes:
            next(iter(self._spare)).let_go()
        return self.held_bytes < self.limit_bytes

    def _wake(self) -> None:
        count = max(self.favoured is None, -(-(self.limit_bytes - self.held_bytes) // _WAKE_BYTES))
        for holder in [holder for holder, _ in zip(self._waiting, range(count), strict=False)]:
            holder.memory_free()


#: From this size on it is a mapping.
_MAPPED_BYTES = 128 * 1024
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class GrowingMemory:
    """Grows with what is written to it, without being moved or filled with zeros where the system can avoid it.

    Large memory is a mapping of its own: the system gives a page of it only once something is written there, and takes
    all of it back when it is let go.
    """

    def __init__(self, content: memoryview, capacity: int) -> None:
        """Holds a copy of the content at its start."""
        self._mapping: mmap.mmap | None = None
        #: What was written to, which is all that a mapping takes of the machine's memory.
        self.used_bytes = 0
        self._make(content, capacity)

    @property
    def is_large(self) -> bool:
        return self._mapping is not None

    def keep(self, start: int, end: int, capacity: int) -> None:
        """Move what lies there to the front, of larger memory where the capacity is beyond that of now."""
        size = end - start
        if capacity <= len(self.view):
            self.view[:size] = self.view[start:end]
        elif self._mapping is None or not self._extend(capacity):
            self._make(self.view[start:end], capacity)
        elif start:
            self.view[:size] = self.view[start:end]

    def _make(self, content: memoryview, capacity: int) -> None:
        size = len(content)
        if capacity < _MAPPED_BYTES:
            memory = bytearray(content)
            memory.extend(bytes(capacity - size))
            self.view = memoryview(memory)
            self.used_bytes = capacity
            return
        mapping = mmap.mmap(-1, capacity, flags=_FLAGS)
        view = memoryview(mapping)
        view[:size] = content
        self._mapping, self.view, self.used_bytes = mapping, view, size

    def _extend(self, capacity: int) -> bool:
        """Whether the system could do it; it cannot while a part of the memory is still looked at."""
        assert self._mapping is not None
        self.view.release()
        is_done = False
        with suppress(BufferError, SystemError, ValueError):
            self._mapping.resize(capacity)
            is_done = True
        self.view = memoryview(self._mapping)
        return is_done
