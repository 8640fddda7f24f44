"""What is measured of the data source: cases, goal, and the names by which they are reported. Pure."""

import msgspec

from benchmarks.contenders.names import ContenderName
from benchmarks.contenders.shapes import QUICK_SIZES, Shape, Sizes

PREFIX = "data-source"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """The topics of one shape."""

    shape: Shape

    @property
    def name(self) -> str:
        return f"{PREFIX}-{self.shape.name}"

    def includes(self, contender: ContenderName) -> bool:
        return contender is not ContenderName.CONNECTOR or self.shape.topic_count == 1


class ReadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much and how often; the same for both."""

    sizes: Sizes
    repeats: int


FULL = ReadSettings(sizes=Sizes(), repeats=3)
QUICK = ReadSettings(sizes=QUICK_SIZES, repeats=1)
