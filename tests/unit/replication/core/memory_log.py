"""A partition log in memory that knows what a power cut would leave of it."""

import random

from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.replication.core.divergence import ReplicaLog
from quorate.storage.epoch_cache import LeaderEpochCache

Record = tuple[LeaderEpoch, str]


class MemoryLog:
    def __init__(self) -> None:
        self.start = 0
        self.records: list[Record] = []
        self.synced_end = 0
        self.epochs = LeaderEpochCache()

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def view(self) -> ReplicaLog:
        return ReplicaLog(
            log_start_offset=Offset(self.start), log_end_offset=Offset(self.end), epochs=self.epochs.entries()
        )

    def at(self, offset: int) -> Record:
        return self.records[offset - self.start]

    def open_epoch(self, epoch: LeaderEpoch) -> None:
        self.epochs.assign(epoch, Offset(self.end))

    def append(self, records: list[Record]) -> None:
        for epoch, value in records:
            self.epochs.assign(epoch, Offset(self.end))
            self.records.append((epoch, value))

    def sync(self) -> None:
        self.synced_end = self.end

    def truncate_to(self, offset: int) -> None:
        if offset >= self.end:
            return
        if offset < self.start:
            self.start_at(offset)
            return
        del self.records[offset - self.start :]
        self.synced_end = min(self.synced_end, offset)
        self.epochs.truncate_from_end(Offset(offset))

    def start_at(self, offset: int) -> None:
        self.start = self.synced_end = offset
        self.records = []
        self.epochs = LeaderEpochCache()

    def delete_before(self, offset: int) -> None:
        if offset > self.start:
            del self.records[: offset - self.start]
            self.start = offset
            self.synced_end = max(self.synced_end, offset)
            self.epochs.truncate_from_start(Offset(offset))

    def cut_power(self, rng: random.Random) -> None:
        """What was synced stays; of the rest some prefix may have reached the disk."""
        self.truncate_to(rng.randint(self.synced_end, self.end))
        self.synced_end = self.end
