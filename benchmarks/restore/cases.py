"""What is measured of the restore: cases, goals, and the names by which they are reported. Pure."""

from enum import StrEnum

import msgspec

from benchmarks.contenders.names import ContenderName
from benchmarks.contenders.shapes import QUICK_SIZES, Shape, Sizes, shapes_of

PREFIX = "restore"


class TargetKind(StrEnum):
    #: Three nodes of Quorate, which write what they get to their logs.
    CLUSTER = "cluster"
    #: One node of Quorate that takes every batch and keeps none: what is left is the work of the contenders.
    SINK = "sink"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """The topics of one shape, restored into one kind of target."""

    target: TargetKind
    shape: Shape

    @property
    def name(self) -> str:
        return f"{PREFIX}-{self.target}-{self.shape.name}"

    def includes(self, contender: ContenderName) -> bool:
        """Batches that their producer compressed are never compressed again: zstd would change nothing.

        The whole command takes the same time longer everywhere: one target tells it.
        """
        match contender:
            case ContenderName.QUORATE_ZSTD:
                return self.shape.is_of_usual_records and self.shape.producer_compression == "none"
            case ContenderName.KAFKA_BACKUP:
                return self.shape.is_of_usual_records
            case ContenderName.CONNECTOR:
                return self.shape.topic_count == 1
            case ContenderName.QUORATE_COMMAND:
                return self.shape.is_of_usual_records and self.target is TargetKind.CLUSTER
            case _:
                return True


def cases_of(sizes: Sizes) -> list[Case]:
    return [Case(target=target, shape=shape) for target in TargetKind for shape in shapes_of(sizes)]


class RestoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much and how often; the same for all contenders."""

    sizes: Sizes
    repeats: int


FULL = RestoreSettings(sizes=Sizes(), repeats=3)
QUICK = RestoreSettings(sizes=QUICK_SIZES, repeats=1)
