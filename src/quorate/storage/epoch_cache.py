"""Where each leader epoch starts in a log (KIP-101, KIP-279).

Both epochs and start offsets rise strictly from entry to entry.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from quorate.kernel.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset
from quorate.storage.checkpoints import EpochStart

UNDEFINED_OFFSET = Offset(-1)


class LeaderEpochCache:
    __slots__ = ("_epochs", "_starts")

    def __init__(self, entries: Iterable[EpochStart] = ()) -> None:
        self._epochs: list[LeaderEpoch] = []
        self._starts: list[Offset] = []
        for epoch, start in entries:
            self.assign(epoch, start)

    @property
    def latest_epoch(self) -> LeaderEpoch:
        return self._epochs[-1] if self._epochs else NO_LEADER_EPOCH

    def entries(self) -> list[EpochStart]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: LeaderEpoch, start: Offset) -> bool:
        """Note that records from ``start`` on carry ``epoch``; True if that is news.

        An entry that contradicts it (a higher epoch, or one that starts at or after ``start``) is of a history that the
        log no longer has.
        """
        if epoch < 0 or (self._epochs and self._epochs[-1] == epoch):
            return False
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start))
        del self._epochs[keep:], self._starts[keep:]
        self._epochs.append(epoch)
        self._starts.append(start)
        return True

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: Offset) -> EpochStart:
        """The largest epoch that is not above ``epoch``, and where it ends; undefined where this log cannot know."""
        if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
            return NO_LEADER_EPOCH, UNDEFINED_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        floor = self._epochs[higher - 1] if higher else epoch
        return floor, self._starts[higher]

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else NO_LEADER_EPOCH

    def truncate_from_end(self, end: Offset) -> bool:
        """Forget epochs that start at or after ``end``; True if there were any."""
        keep = bisect_left(self._starts, end)
        changed = keep < len(self._starts)
        del self._epochs[keep:], self._starts[keep:]
        return changed

    def truncate_from_start(self, start: Offset) -> bool:
        """Forget epochs that end at or before ``start``; the one that holds it now starts there."""
        holder = bisect_right(self._starts, start) - 1
        if holder < 0 or (holder == 0 and self._starts[0] == start):
            return False
        del self._epochs[:holder], self._starts[:holder]
        self._starts[0] = start
        return True
