"""What is measured of the data source: cases, goal, and the names by which they are reported. Pure."""

import msgspec

PREFIX = "data-source"
MIN_RATIO_PER_CPU_SECOND = 3.0


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One topic."""

    name: str
    producer_compression: str

    @property
    def topic(self) -> str:
        return f"rows-{self.producer_compression}"


CASES = (
    Case(name="data-source-lz4", producer_compression="lz4"),
    Case(name="data-source-uncompressed", producer_compression="none"),
)


class ReadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much and how often; the same for both."""

    records: int
    partitions: int
    repeats: int


FULL = ReadSettings(records=1_500_000, partitions=12, repeats=3)
QUICK = ReadSettings(records=150_000, partitions=12, repeats=1)
