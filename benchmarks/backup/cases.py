"""What is measured of the backup: cases, goals, and the names by which they are reported. Pure."""

import msgspec

from benchmarks.contenders.names import ContenderName
from benchmarks.contenders.shapes import QUICK_SIZES, Shape, Sizes

PREFIX = "backup"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """The topics of one shape."""

    shape: Shape

    @property
    def name(self) -> str:
        return f"{PREFIX}-{self.shape.name}"

    def includes(self, contender: ContenderName) -> bool:
        """Batches that their producer compressed are never compressed again: zstd would change nothing."""
        match contender:
            case ContenderName.QUORATE_ZSTD:
                return self.shape.is_of_usual_records and self.shape.producer_compression == "none"
            case ContenderName.KAFKA_BACKUP:
                return self.shape.is_of_usual_records
            case ContenderName.CONNECTOR:
                return self.shape.topic_count == 1
            case _:
                return True


IDLE_PARTITIONS = "backup-idle-partitions"


class BackupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much and how often; the same for all contenders."""

    sizes: Sizes
    repeats: int
    idle_topics: int
    idle_partitions_per_topic: int
    idle_runs: int


FULL = BackupSettings(sizes=Sizes(), repeats=3, idle_topics=30, idle_partitions_per_topic=100, idle_runs=3)
QUICK = BackupSettings(sizes=QUICK_SIZES, repeats=1, idle_topics=3, idle_partitions_per_topic=100, idle_runs=2)

MAX_TASK_MEMORY_BYTES = 200_000_000
MAX_IDLE_PARTITION_MS = 5.0
