"""The data: what was acknowledged stays, and what anybody has read at an offset is what everybody reads there."""

from quorate.kernel.ids import PartitionIndex
from tests.simulation.cluster.findings import Findings


class Records:
    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._acknowledged: dict[PartitionIndex, dict[int, bytes]] = {}
        self._read: dict[PartitionIndex, dict[int, bytes]] = {}

    def acknowledged(self, partition: PartitionIndex, offset: int, value: bytes) -> None:
        known = self._acknowledged.setdefault(partition, {}).setdefault(offset, value)
        if known != value:
            self._report(f"offset {offset} of partition {partition} was given to {known!r} and to {value!r}")
        self._agrees(partition, offset, value)

    def read(self, partition: PartitionIndex, offset: int, value: bytes) -> None:
        self._agrees(partition, offset, value)
        self._read.setdefault(partition, {})[offset] = value

    def check_all(self, partition: PartitionIndex, found: dict[int, bytes]) -> None:
        """The whole partition, when all is well again."""
        for offset, value in self._acknowledged.get(partition, {}).items():
            if found.get(offset) != value:
                self._report(f"{value!r} was acknowledged at {offset} of partition {partition}, and is lost")
        for offset, value in self._read.get(partition, {}).items():
            if found.get(offset) != value:
                self._report(f"{value!r} was read at {offset} of partition {partition}, and is gone")
        if len(set(found.values())) != len(found):
            self._report(f"partition {partition} holds a record twice that was sent once")

    def _agrees(self, partition: PartitionIndex, offset: int, value: bytes) -> None:
        for known in (self._read, self._acknowledged):
            other = known.get(partition, {}).get(offset, value)
            if other != value:
                self._report(f"offset {offset} of partition {partition} holds {value!r}, but was {other!r}")

    def _report(self, text: str) -> None:
        self._findings.report("records", text)
