"""What clients were told, held against what they are told later: lost, changed, duplicated, skipped."""

from collections.abc import Sequence

from quorate.kernel.ids import LeaderEpoch, Offset

PartitionNumber = int


class HistoryBroken(AssertionError):
    """An invariant of the cluster does not hold."""


class History:
    def __init__(self, once: tuple[bytes, ...] = (b"once",)) -> None:
        """``once``: what the values of idempotent producers begin with."""
        self._once = once
        #: Every record that was acknowledged or read: one offset holds one record for ever.
        self.records: dict[PartitionNumber, dict[Offset, bytes]] = {}
        self._acknowledged: dict[PartitionNumber, dict[Offset, bytes]] = {}
        #: Where a record of an idempotent producer was seen: at one place at most.
        self._places: dict[bytes, tuple[PartitionNumber, Offset]] = {}
        #: Where records were lost that might be: from which leader epoch on, and from which offset.
        self._losses: dict[PartitionNumber, list[tuple[LeaderEpoch, Offset]]] = {}
        self.acknowledged_count = 0
        self.read_count = 0

    def acknowledged(
        self,
        partition: PartitionNumber,
        base_offset: int,
        values: Sequence[bytes],
        leader_epoch: LeaderEpoch | None = None,
    ) -> None:
        """``leader_epoch``: the latest that the node knew when it was asked, where that can be known."""
        for offset, value in enumerate(values, base_offset):
            if self._is_lost(partition, Offset(offset), leader_epoch):
                continue
            self._note(partition, Offset(offset), value, "acknowledged")
            self._acknowledged.setdefault(partition, {})[Offset(offset)] = value
        self.acknowledged_count += len(values)

    def read(
        self,
        partition: PartitionNumber,
        offset: Offset,
        value: bytes,
        reader: str,
        leader_epoch: LeaderEpoch | None = None,
    ) -> None:
        if not self._is_lost(partition, offset, leader_epoch):
            self._note(partition, offset, value, f"read by {reader}")
        self.read_count += 1

    # Where the last replica in sync loses what the operating system had not written, the cluster may forget.

    def lose(self, partition: PartitionNumber, from_offset: Offset, leader_epoch: LeaderEpoch) -> None:
        """From this leader epoch on, what was at the offset and after it may be anything else."""
        self._losses.setdefault(partition, []).append((leader_epoch, from_offset))
        for kept in (self.records, self._acknowledged):
            records = kept.get(partition, {})
            for offset in [offset for offset in records if offset >= from_offset]:
                self._places.pop(records.pop(offset), None)

    def has_lost(self, partition: PartitionNumber) -> bool:
        return partition in self._losses

    def end_offset(self, partition: PartitionNumber) -> Offset:
        """After the last record that anybody was told of."""
        return Offset(max(self.records.get(partition, {}), default=-1) + 1)

    def _is_lost(self, partition: PartitionNumber, offset: Offset, leader_epoch: LeaderEpoch | None) -> bool:
        """Whether the node that told of it did not know yet that it was to be lost."""
        losses = self._losses.get(partition, ())
        return leader_epoch is not None and any(leader_epoch < epoch and offset >= start for epoch, start in losses)

    def check_log(self, partition: PartitionNumber, log: dict[Offset, bytes], where: str) -> None:
        """A log in the end: it has everything that anybody was told of, where they were told."""
        if sorted(log) != list(range(len(log))):
            raise HistoryBroken(f"{where} of partition {partition} has holes: {sorted(log)[:20]}")
        for offset, value in self.records.get(partition, {}).items():
            if log.get(offset) != value:
                told = "acknowledged" if offset in self._acknowledged.get(partition, {}) else "read"
                raise HistoryBroken(
                    f"{where} of partition {partition} has {log.get(offset)!r} at {offset}, where {value!r} was {told}"
                )
        for offset, value in log.items():
            self._note(partition, offset, value, f"in {where}")

    def _note(self, partition: PartitionNumber, offset: Offset, value: bytes, how: str) -> None:
        known = self.records.setdefault(partition, {}).setdefault(offset, value)
        if known != value:
            raise HistoryBroken(f"offset {offset} of partition {partition} was {known!r} and is {value!r}, {how}")
        if value.startswith(self._once):
            place = self._places.setdefault(value, (partition, offset))
            if place != (partition, offset):
                raise HistoryBroken(f"{value!r} is at {place} and at {(partition, offset)}, {how}")
