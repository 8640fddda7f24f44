"""The last batches of the active segment, in memory, so that a reader at the tail needs no index and no scan."""

from array import array
from bisect import bisect_left, bisect_right

from quorate.kernel.ids import Offset

_KEPT = 256  # Trimmed to this when twice as many have collected.


class RecentBatches:
    """Where the last batches start. They follow each other without a hole and end where the file ends."""

    __slots__ = ("_known_from", "_last_offsets", "_positions")

    def __init__(self, known_from: Offset) -> None:
        # Every batch that holds an offset at or above this one is here.
        self._known_from = known_from
        self._last_offsets = array("q")
        self._positions = array("q")

    def add(self, last_offset: Offset, position: int) -> None:
        self._last_offsets.append(last_offset)
        self._positions.append(position)
        if len(self._positions) >= 2 * _KEPT:
            self._known_from = Offset(self._last_offsets[_KEPT - 1] + 1)
            del self._last_offsets[:_KEPT], self._positions[:_KEPT]

    def forget(self, known_from: Offset) -> None:
        self._known_from = known_from
        self._last_offsets = array("q")
        self._positions = array("q")

    def knows(self, offset: Offset) -> bool:
        return offset >= self._known_from

    def start_of(self, offset: Offset, size_bytes: int) -> int:
        """Where the first batch starts that ends at or after ``offset``; the end of the file if there is none."""
        index = bisect_left(self._last_offsets, offset)
        return self._positions[index] if index < len(self._positions) else size_bytes

    def start_after(self, position: int, size_bytes: int) -> int:
        """Where the batch ends that starts at ``position``."""
        index = bisect_right(self._positions, position)
        return self._positions[index] if index < len(self._positions) else size_bytes

    def boundary_at_or_before(self, position: int, size_bytes: int) -> int:
        """The last boundary between batches that is not beyond ``position``."""
        if position >= size_bytes:
            return size_bytes
        return self._positions[bisect_right(self._positions, position) - 1]
