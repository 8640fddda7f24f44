"""Whether batches of another replica are those that a damaged range of a log had. Changes nothing.

An epoch has one leader, which gives an offset once: a batch of the right offset and epoch, whose CRC is right, is the
one that was here.
"""

from collections.abc import Sequence

from quorate.kernel.ids import Offset
from quorate.kernel.ports import Buffer
from quorate.records.batch import check_crc, read_batches
from quorate.records.errors import CorruptBatch
from quorate.storage.checkpoints import EpochStart
from quorate.storage.damage import DamagedRange, epoch_at


class Replacement:
    """The batches of one damaged range, as they come."""

    def __init__(self, damaged: DamagedRange, epochs: Sequence[EpochStart], *, may_have_holes: bool) -> None:
        self._damaged = damaged
        self._epochs = epochs
        self._may_have_holes = may_have_holes
        #: What is wanted next.
        self.next_offset = damaged.first_offset

    def take(self, records: Buffer) -> memoryview:
        """The part of the records that belongs in the range; ``CorruptBatch`` where they are not what was there."""
        view = memoryview(records)
        first, end = len(view), 0
        for position, header in read_batches(view):
            check_crc(view, position, header)
            if header.next_offset <= self._damaged.first_offset or header.base_offset >= self._damaged.end_offset:
                continue  # A slice starts with the batch that holds its first offset.
            expected = epoch_at(self._epochs, header.base_offset)
            if expected is not None and header.partition_leader_epoch != expected:
                raise CorruptBatch(f"offset {header.base_offset} was written in epoch {expected} here")
            follows = (
                header.base_offset >= self.next_offset
                if self._may_have_holes
                else (header.base_offset == self.next_offset)
            )
            if not follows or header.next_offset > self._damaged.end_offset:
                raise CorruptBatch(f"a batch of offset {header.base_offset} where {self.next_offset} is next")
            first = min(first, position)
            end = position + header.size_bytes
            self.next_offset = header.next_offset
        return view[first:end]

    @property
    def is_complete(self) -> bool:
        return self.next_offset >= self._damaged.end_offset

    def end(self) -> None:
        """The other replica has no more of the range; ``CorruptBatch`` where it cannot be all."""
        if not self.is_complete and not self._may_have_holes:
            raise CorruptBatch(f"the records from {self.next_offset} on are not there")
        self.next_offset = Offset(max(self.next_offset, self._damaged.end_offset))
