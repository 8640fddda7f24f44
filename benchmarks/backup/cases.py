"""What is measured of the backup: cases, goals, and the names by which they are reported. Pure."""

import msgspec

from benchmarks.contenders.names import ContenderName

PREFIX = "backup"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One topic."""

    name: str
    producer_compression: str

    @property
    def topic(self) -> str:
        return f"records-{self.producer_compression}"

    def includes(self, contender: ContenderName) -> bool:
        """Batches that their producer compressed are never compressed again: zstd would change nothing."""
        return contender is not ContenderName.QUORATE_ZSTD or self.producer_compression == "none"


CASES = (
    Case(name="backup-lz4", producer_compression="lz4"),
    Case(name="backup-uncompressed", producer_compression="none"),
)
IDLE_PARTITIONS = "backup-idle-partitions"


class BackupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much and how often; the same for all contenders."""

    records: int
    partitions: int
    repeats: int
    idle_topics: int
    idle_partitions_per_topic: int
    idle_runs: int


FULL = BackupSettings(
    records=1_500_000, partitions=12, repeats=3, idle_topics=30, idle_partitions_per_topic=100, idle_runs=3
)
QUICK = BackupSettings(
    records=150_000, partitions=12, repeats=1, idle_topics=3, idle_partitions_per_topic=100, idle_runs=2
)

MIN_RATIO_TO_PEERS = 5.0
MIN_RATIO_TO_LIMIT = 0.6
MAX_TASK_MEMORY_BYTES = 200_000_000
MAX_IDLE_PARTITION_MS = 5.0
