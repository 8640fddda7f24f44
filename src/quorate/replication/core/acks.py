"""Writes that wait for the high watermark.

Those with ``acks=all`` always do. Those with ``acks=1`` do while the leader is the only in-sync replica: it alone
decides when the record can be read, and a client that reads its own write right after the answer must find it. Such a
write asks for no other replica, so it never ends with an error about them, and it is released when the ISR grows.

Every write that is added ends exactly once: acknowledged, or with the error that says why not. Deadlines are the
shell's to watch.
"""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

import msgspec

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import Offset

DoneT = TypeVar("DoneT", bound=Hashable)

_FEW = 64


class Ack(msgspec.Struct, Generic[DoneT], frozen=True, kw_only=True):
    """The end of one write; without an error it is acknowledged."""

    done: DoneT
    error: ErrorCode | None = None


class AckTracker(Generic[DoneT]):
    """One per led partition and leader epoch. ``done`` stands for a write: what is to be called when it has ended.

    The high watermark is the partition's, and handed in.
    """

    def __init__(self) -> None:
        #: With the number of its arrival, which tells it from an earlier write that was called the same.
        self._waiting: dict[DoneT, int] = {}
        #: Those of them with ``acks=1``.
        self._leader_only: set[DoneT] = set()
        #: By end offset, then in the order of arrival: a retried batch comes late and ends early. Writes that have
        #: timed out stay until they are met, or are too many.
        self._by_offset: list[tuple[Offset, int, DoneT]] = []
        self._arrivals = 0
        self._closed_by: ErrorCode | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, done: DoneT, end_offset: Offset, high_watermark: Offset, *, enough_replicas: bool
    ) -> list[Ack[DoneT]]:
        """Wait until the high watermark reaches ``end_offset``; returns the write if it has already ended."""
        if done in self._waiting:
            raise ValueError(f"{done!r} is waited for already")
        if self._closed_by is not None:
            return [Ack(done=done, error=self._closed_by)]
        if end_offset <= high_watermark:
            return [Ack(done=done, error=_completion_error(enough_replicas))]
        self._arrivals += 1
        self._waiting[done] = self._arrivals
        heappush(self._by_offset, (end_offset, self._arrivals, done))
        return []

    def add_leader_only(self, done: DoneT, end_offset: Offset, high_watermark: Offset) -> list[Ack[DoneT]]:
        """The same for a write with ``acks=1``, which also ends when ``release_leader_only`` is called."""
        ended = self.add(done, end_offset, high_watermark, enough_replicas=True)
        if not ended:
            self._leader_only.add(done)
        return ended

    def release_leader_only(self) -> list[Ack[DoneT]]:
        """Other replicas are in sync now: writes with ``acks=1`` do not wait for them."""
        if not self._leader_only:
            return []
        ended = [
            Ack(done=done)
            for _, arrival, done in sorted(self._by_offset)
            if done in self._leader_only and self._waiting.get(done) == arrival
        ]
        for ack in ended:
            del self._waiting[ack.done]
        self._leader_only.clear()
        self._drop_ended()
        return ended

    def advance(self, high_watermark: Offset, *, enough_replicas: bool) -> list[Ack[DoneT]]:
        """End the writes that the watermark has passed, in offset order.

        Without enough replicas in sync they are committed, but not as safely as their producers asked.
        """
        ended: list[Ack[DoneT]] = []
        if not self._by_offset:
            return ended
        error = _completion_error(enough_replicas)
        while self._by_offset and self._by_offset[0][0] <= high_watermark:
            _, arrival, done = heappop(self._by_offset)
            if self._waiting.get(done) == arrival:
                del self._waiting[done]
                if done in self._leader_only:
                    self._leader_only.discard(done)
                    ended.append(Ack(done=done))
                else:
                    ended.append(Ack(done=done, error=error))
        return ended

    def time_out(self, done: DoneT) -> list[Ack[DoneT]]:
        """The write's time is up; returns nothing if it has ended before."""
        if done not in self._waiting:
            return []
        del self._waiting[done]
        self._leader_only.discard(done)
        self._drop_ended()
        return [Ack(done=done, error=ErrorCode.REQUEST_TIMED_OUT)]

    def close(self, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> list[Ack[DoneT]]:
        """Leadership is lost, or the partition failed: end all writes, and all that come after, with ``error``."""
        self._closed_by = self._closed_by or error
        in_order = sorted(self._by_offset)
        ended = [Ack(done=done, error=error) for _, number, done in in_order if self._waiting.get(done) == number]
        self._waiting.clear()
        self._leader_only.clear()
        self._by_offset.clear()
        return ended

    def _drop_ended(self) -> None:
        if len(self._by_offset) > 2 * len(self._waiting) + _FEW:
            self._by_offset = [entry for entry in self._by_offset if self._waiting.get(entry[2]) == entry[1]]
            heapify(self._by_offset)


def _completion_error(enough_replicas: bool) -> ErrorCode | None:
    return None if enough_replicas else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
