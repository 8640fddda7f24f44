"""Finding the damaged ranges of a log file, and the sound batches behind them. Reads, and changes nothing.

A batch is sound if it can be read, its CRC is right, it follows the one before it, its leader epoch is the one that the
log knows for its offset, and no checksum contradicts the bytes where it stands. Everything between two sound batches
is one damaged range. In a log without compaction offsets follow each other without a hole, so that a wrong base offset
is found; in a compacted one they only rise, and it takes checksums to find it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import msgspec

from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.kernel.ports import DiskFile
from quorate.records.batch import HEADER_SIZE_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, check_crc, read_header
from quorate.records.errors import CorruptBatch, UnsupportedMagic
from quorate.storage.batch_scan import scan_batches
from quorate.storage.checkpoints import EpochStart

_SEARCH_BYTES = 1 << 20
#: The search yields after so many sound bytes.
_STEP_BYTES = 256 << 10
_OFFSET_BYTES = 8
#: The first bytes of an offset are the same in neighbouring batches.
_COMMON_PREFIX_BYTES = 4


class DamagedRange(msgspec.Struct, frozen=True, kw_only=True):
    """Positions in the file, and the offsets that its records had: from the first up to the end."""

    start: int
    end: int
    first_offset: Offset
    end_offset: Offset


class LogExtent(msgspec.Struct, frozen=True, kw_only=True):
    """A range of a log file, and what is known of it."""

    start: int
    end: int
    #: The offset of the first batch, and that after the last.
    first_offset: Offset
    end_offset: Offset
    epochs: Sequence[EpochStart]
    #: Whether compaction may have taken records away.
    may_have_holes: bool
    #: Ranges whose checksums do not match.
    suspect: Sequence[tuple[int, int]] = ()


def find_damage(file: DiskFile, extent: LogExtent) -> list[DamagedRange]:
    search = DamageSearch(file, extent)
    for _ in search.steps():
        pass
    return search.found


def sound_parts(start: int, end: int, damage: Sequence[DamagedRange]) -> Iterator[tuple[int, int]]:
    """The rest of a range of a file without the damaged ranges, which are in order."""
    for damaged in damage:
        if damaged.end <= start:
            continue
        if damaged.start >= end:
            break
        if start < damaged.start:
            yield start, damaged.start
        start = damaged.end
    if start < end:
        yield start, end


def epoch_at(epochs: Sequence[EpochStart], offset: Offset) -> LeaderEpoch | None:
    """The leader epoch in which the offset was assigned; None where that is not known."""
    index = bisect_right(epochs, offset, key=_start_of)
    return epochs[index - 1][0] if index else None


def _start_of(entry: EpochStart) -> Offset:
    return entry[1]


class DamageSearch:
    """One search, in steps that the caller paces."""

    def __init__(self, file: DiskFile, extent: LogExtent) -> None:
        self.found: list[DamagedRange] = []
        self._file = file
        self._extent = extent
        #: The end of the sound batches found so far, and the offset after them.
        self._position = extent.start
        self._next_offset = extent.first_offset

    def steps(self) -> Iterator[int]:
        """Search to the end; yields from time to time how many bytes were read since the last yield."""
        extent = self._extent
        while self._position < extent.end:
            yield from self._pass_sound_batches()
            if self._position >= extent.end:
                break
            start, first_offset = self._position, self._next_offset
            self._position, self._next_offset = self._next_sound(start)
            yield self._position - start
            self._note(start, self._position, first_offset)
        if self._next_offset < extent.end_offset and not extent.may_have_holes:
            # The end of the file is gone, or all of it.
            first_offset, self._next_offset = self._next_offset, extent.end_offset
            self._note(extent.end, extent.end, first_offset)

    def _note(self, start: int, end: int, first_offset: Offset) -> None:
        self.found.append(DamagedRange(start=start, end=end, first_offset=first_offset, end_offset=self._next_offset))

    def _pass_sound_batches(self) -> Iterator[int]:
        told = self._position
        try:
            for position, header, _ in scan_batches(self._file, self._position, self._extent.end):
                if not self._fits(position, header):
                    break
                self._position = position + header.size_bytes
                self._next_offset = header.next_offset
                if self._position - told >= _STEP_BYTES:
                    yield self._position - told
                    told = self._position
        except (CorruptBatch, UnsupportedMagic):
            pass
        yield self._position - told

    def _fits(self, position: int, header: BatchHeader, *, is_first_after_damage: bool = False) -> bool:
        extent = self._extent
        if header.last_offset_delta < 0 or header.next_offset > extent.end_offset:
            return False
        if header.base_offset < self._next_offset:
            return False
        if header.base_offset > self._next_offset and not extent.may_have_holes and not is_first_after_damage:
            return False
        expected = epoch_at(extent.epochs, header.base_offset)
        if expected is not None and header.partition_leader_epoch != expected:
            return False
        end = position + header.size_bytes
        return not any(position < suspect_end and start < end for start, suspect_end in extent.suspect)

    def _next_sound(self, damaged: int) -> tuple[int, Offset]:
        """The start of the next sound batch, and its offset; the end of the extent where there is none."""
        for position in self._candidates(damaged):
            header = self._sound_at(position)
            if header is not None:
                return position, header.base_offset
        return self._extent.end, self._extent.end_offset

    def _candidates(self, damaged: int) -> Iterator[int]:
        following = self._following(damaged)
        while following is not None and self._extent.start < following < self._extent.end:
            yield following
            following = self._following(following)
        yield from self._lookalikes(damaged + 1)

    def _following(self, position: int) -> int | None:
        try:
            header = read_header(self._file.read(position, HEADER_SIZE_BYTES))
        except (CorruptBatch, UnsupportedMagic):
            return None
        return position + header.size_bytes

    def _lookalikes(self, position: int) -> Iterator[int]:
        """Positions of bytes that could begin a header: the only way on where a length is damaged."""
        pattern = self._next_offset.to_bytes(_OFFSET_BYTES)[:_COMMON_PREFIX_BYTES]
        end = self._extent.end - HEADER_SIZE_BYTES + 1
        while position < end:
            content = self._file.read(position, _SEARCH_BYTES + HEADER_SIZE_BYTES)
            at = content.find(pattern)
            while 0 <= at < _SEARCH_BYTES and position + at < end:
                if content[at + 16 : at + 17] == b"\x02" and self._length_fits(content, at, position):
                    yield position + at
                at = content.find(pattern, at + 1)
            position += _SEARCH_BYTES

    def _length_fits(self, content: bytes, at: int, position: int) -> bool:
        length = int.from_bytes(content[at + 8 : at + LOG_OVERHEAD_BYTES], signed=True)
        return length >= HEADER_SIZE_BYTES - LOG_OVERHEAD_BYTES and position + at + length <= self._extent.end

    def _sound_at(self, position: int) -> BatchHeader | None:
        try:
            header = read_header(self._file.read(position, HEADER_SIZE_BYTES))
            if position + header.size_bytes > self._extent.end:
                return None
            check_crc(self._file.read(position, header.size_bytes), 0, header)
        except (CorruptBatch, UnsupportedMagic):
            return None
        return header if self._fits(position, header, is_first_after_damage=True) else None
