"""The segments of a log in order of their base offsets. There is always at least one; the last is the active one."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from quorate.kernel.ids import Offset
from quorate.storage.segment import Segment


class Segments:
    __slots__ = ("_bases", "_segments")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in self._segments]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def holding(self, offset: Offset) -> Segment:
        """The segment whose range the offset is in; the first one for offsets before all."""
        return self._segments[max(0, bisect_right(self._bases, offset) - 1)]

    def starting_from(self, offset: Offset) -> list[Segment]:
        """The segment that holds the offset and all after it."""
        return self._segments[max(0, bisect_right(self._bases, offset) - 1) :]

    def up_to(self, offset: Offset) -> list[Segment]:
        """All segments that start before the offset."""
        return self._segments[: bisect_left(self._bases, offset)]

    def based_above(self, offset: Offset) -> list[Segment]:
        return self._segments[bisect_right(self._bases, offset) :]

    def next_base_after(self, segment: Segment) -> Offset | None:
        """Where the segment after this one starts; None for the active one."""
        index = bisect_right(self._bases, segment.base_offset)
        return self._bases[index] if index < len(self._bases) else None

    def next_after(self, segment: Segment) -> Segment | None:
        index = bisect_right(self._bases, segment.base_offset)
        return self._segments[index] if index < len(self._segments) else None

    def with_ends(self, log_end_offset: Offset) -> list[tuple[Segment, Offset]]:
        """Each segment with the offset at which the next one starts."""
        return list(zip(self._segments, [*self._bases[1:], log_end_offset], strict=True))

    def add(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def replace(self, old: list[Segment], new: list[Segment]) -> None:
        """Put ``new`` where ``old``, which stand next to each other, have been."""
        first = bisect_left(self._bases, old[0].base_offset)
        self._segments[first : first + len(old)] = new
        self._bases[first : first + len(old)] = [segment.base_offset for segment in new]
