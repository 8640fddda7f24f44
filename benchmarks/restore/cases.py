"""What is measured of the restore: cases, goals, and the names by which they are reported. Pure."""

from enum import StrEnum

import msgspec

from benchmarks.contenders.names import ContenderName

PREFIX = "restore"


class TargetKind(StrEnum):
    #: Three nodes of Quorate, which write what they get to their logs.
    CLUSTER = "cluster"
    #: One node of Quorate that takes every batch and keeps none: what is left is the work of the contenders.
    SINK = "sink"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One topic, restored into one kind of target."""

    target: TargetKind
    producer_compression: str

    @property
    def name(self) -> str:
        return f"{PREFIX}-{self.target}-{'uncompressed' if self.producer_compression == 'none' else 'lz4'}"

    @property
    def topic(self) -> str:
        """At the source."""
        return f"records-{self.producer_compression}"

    def includes(self, contender: ContenderName) -> bool:
        """Batches that their producer compressed are never compressed again: zstd would change nothing.

        The whole command takes the same time longer everywhere: one target tells it.
        """
        match contender:
            case ContenderName.QUORATE_ZSTD:
                return self.producer_compression == "none"
            case ContenderName.QUORATE_COMMAND:
                return self.target is TargetKind.CLUSTER
            case _:
                return True


CASES = tuple(
    Case(target=target, producer_compression=compression) for target in TargetKind for compression in ("lz4", "none")
)


class RestoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much and how often; the same for all contenders."""

    records: int
    partitions: int
    repeats: int


FULL = RestoreSettings(records=1_000_000, partitions=12, repeats=3)
QUICK = RestoreSettings(records=150_000, partitions=12, repeats=1)

MIN_RATIO_TO_PEERS = 3.0
MIN_RATIO_TO_LIMIT = 0.6
