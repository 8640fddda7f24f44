"""The memory that all connections of a listener together read into, and its limit.

Reads go into one buffer that all connections share, since what comes whole is served at once. Only what is left of a
read when another connection reads, a request that came in part or one that has to wait, is kept by its connection, and
counted here. Once that is as much as the limit, connections with a request in part stop reading, and queue. The first
of the queue may go beyond the limit until its request is whole, however large it is: so there is no deadlock, and never
much more than the limit and one request. Requests that come whole in a short read are served all the same.
"""

from collections import OrderedDict
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
