"""What clients were told, held against what they are told later: lost, changed, duplicated, skipped."""

from collections.abc import Sequence

from quorate.kernel.ids import Offset

PartitionNumber = int


class HistoryBroken(AssertionError):
    """An invariant of the cluster does not hold."""


class History:
    def __init__(self) -> None:
        #: Every record that was acknowledged or read: one offset holds one record for ever.
        self.records: dict[PartitionNumber, dict[Offset, bytes]] = {}
        self._acknowledged: dict[PartitionNumber, dict[Offset, bytes]] = {}
        #: Where a record of an idempotent producer was seen: at one place at most.
        self._places: dict[bytes, tuple[PartitionNumber, Offset]] = {}
        self.acknowledged_count = 0
        self.read_count = 0

    def acknowledged(self, partition: PartitionNumber, base_offset: int, values: Sequence[bytes]) -> None:
        for offset, value in enumerate(values, base_offset):
            self._note(partition, Offset(offset), value, "acknowledged")
            self._acknowledged.setdefault(partition, {})[Offset(offset)] = value
        self.acknowledged_count += len(values)

    def read(self, partition: PartitionNumber, offset: Offset, value: bytes, reader: str) -> None:
        self._note(partition, offset, value, f"read by {reader}")
        self.read_count += 1

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
        if value.startswith(b"once"):
            place = self._places.setdefault(value, (partition, offset))
            if place != (partition, offset):
                raise HistoryBroken(f"{value!r} is at {place} and at {(partition, offset)}, {how}")
