"""Which transactions keep the end of a log from being stable: open ones, and those whose marker is not committed.

A reader of committed records must not pass the first record of such a transaction. A marker alone decides nothing:
until the high watermark has passed it, another leader may not have it, and what it ended must stay out of sight.
"""

from collections import deque
from typing import NamedTuple

from quorate.kernel.ids import Offset, ProducerId


class EndedTransaction(NamedTuple):
    first_offset: Offset
    marker_offset: Offset


class OpenTransactions:
    __slots__ = ("_ended", "_first_offsets", "_first_unstable", "_is_known")

    def __init__(self) -> None:
        self._first_offsets: dict[ProducerId, Offset] = {}
        self._ended: deque[EndedTransaction] = deque()  # Their markers are not committed; by those markers.
        self._first_unstable: Offset | None = None
        self._is_known = True  # Whether the one above is still right.

    @property
    def first_unstable_offset(self) -> Offset | None:
        """The first record that may not be shown as committed, however far the high watermark is; None if all may."""
        if not self._is_known:
            first_offsets = [*self._first_offsets.values(), *(ended.first_offset for ended in self._ended)]
            self._first_unstable = min(first_offsets, default=None)
            self._is_known = True
        return self._first_unstable

    def begin(self, producer_id: ProducerId, first_offset: Offset) -> None:
        self._first_offsets[producer_id] = first_offset
        self._is_known = False

    def end(self, producer_id: ProducerId, marker_offset: Offset) -> EndedTransaction | None:
        """The marker stands in the log; what it ended, if anything was open."""
        first_offset = self._first_offsets.pop(producer_id, None)
        if first_offset is None:
            return None
        ended = EndedTransaction(first_offset, marker_offset)
        self._ended.append(ended)
        self._is_known = False
        return ended

    def adopt_ended(self, earlier: "OpenTransactions", end: Offset) -> None:
        """What had ended below ``end`` when this was made anew, from a snapshot: that one tells of open ones only."""
        known = {ended.marker_offset: ended for ended in (*earlier._ended, *self._ended)}
        self._ended = deque(known[marker_offset] for marker_offset in sorted(known) if marker_offset < end)
        self._is_known = False

    def stable_after(self, ended: EndedTransaction) -> Offset:
        """Where the log is stable once this one has ended: before the first that is open, or after its marker."""
        return min(self._first_offsets.values(), default=Offset(ended.marker_offset + 1))

    def commit_up_to(self, high_watermark: Offset) -> None:
        """Markers below the high watermark are in the log for good."""
        ended = self._ended
        while ended and ended[0].marker_offset < high_watermark:
            ended.popleft()
            self._is_known = False
