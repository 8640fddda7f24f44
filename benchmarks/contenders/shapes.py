"""What the topics are like that contenders copy, restore and read. Pure."""

from collections.abc import Sequence
from typing import Final

import msgspec

from benchmarks.cases import VALUE_SIZE_BYTES

#: A topic of this size has no size in its name.
USUAL_GB: Final = 1.0
MIN_GB: Final = 0.01
MAX_GB: Final = 100.0
PARTITIONS: Final = 12
_SMALL_VALUE_BYTES: Final = 200
#: How many records a batch holds, and what share of the usual size such a topic has: small batches take long to make.
_SMALL_BATCHES: Final = ((1, 0.05), (20, 0.4), (320, 1.0))
_MANY_TOPICS: Final = 1000
_RECORDS_OF_MANY: Final = 10
# A JVM that has read less than this is still compiling itself: its first runs took three times as long as later ones.
_WARM_UP_SHARE: Final = 5


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """GB of values: of each topic of 1 KiB records, and what those of small batches have a share of."""

    topics_gb: tuple[float, ...] = (USUAL_GB,)
    small_batches_gb: float = USUAL_GB
    many_topics: int = _MANY_TOPICS


QUICK_SIZES: Final = Sizes(topics_gb=(0.15,), small_batches_gb=0.03, many_topics=50)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """One topic, or many that are alike; uncompressed unless it says otherwise."""

    name: str
    records_per_topic: int
    topic_count: int = 1
    partitions: int = PARTITIONS
    producer_compression: str = "none"
    value_size_bytes: int = VALUE_SIZE_BYTES
    #: None where a batch has what 64 KiB hold.
    batch_records: int | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        name = f"records-{self.name}"
        return (name,) if self.topic_count == 1 else tuple(f"{name}-{index:04d}" for index in range(self.topic_count))

    @property
    def records(self) -> int:
        return self.records_per_topic * self.topic_count

    @property
    def end_offsets(self) -> tuple[int, ...]:
        """Of each topic: its records go to its partitions in turn."""
        each, rest = divmod(self.records_per_topic, self.partitions)
        return tuple(each + (index < rest) for index in range(self.partitions))

    @property
    def is_of_usual_records(self) -> bool:
        return self.topic_count == 1 and self.batch_records is None

    def small(self) -> "Shape":
        """One like it, to warm up with."""
        if self.topic_count > 1:
            topics = self.topic_count // _WARM_UP_SHARE
            return msgspec.structs.replace(self, name=f"small-{self.name}", topic_count=topics)
        records = self.records_per_topic // _WARM_UP_SHARE
        return msgspec.structs.replace(self, name=f"small-{self.name}", records_per_topic=records)


def shapes_of(sizes: Sizes) -> list[Shape]:
    return [
        *(shape for size_gb in sizes.topics_gb for shape in _usual(size_gb)),
        *(_of_batches(records, share * sizes.small_batches_gb) for records, share in _SMALL_BATCHES),
        Shape(name="topics", records_per_topic=_RECORDS_OF_MANY, topic_count=sizes.many_topics, partitions=1),
    ]


def _usual(size_gb: float) -> Sequence[Shape]:
    suffix = "" if size_gb == USUAL_GB else f"-{size_gb:g}gb"
    records = int(size_gb * 1e9 / VALUE_SIZE_BYTES)
    return [
        Shape(name=f"lz4{suffix}", records_per_topic=records, producer_compression="lz4"),
        Shape(name=f"uncompressed{suffix}", records_per_topic=records),
    ]


def _of_batches(batch_records: int, size_gb: float) -> Shape:
    return Shape(
        name=f"{batch_records}rec",
        records_per_topic=int(size_gb * 1e9 / _SMALL_VALUE_BYTES),
        value_size_bytes=_SMALL_VALUE_BYTES,
        batch_records=batch_records,
    )


def describe(sizes: Sizes) -> list[str]:
    """For the head of a page."""
    each = " and ".join(f"{size_gb:g}" for size_gb in sizes.topics_gb)
    counts = " or ".join(str(records) for records, _ in _SMALL_BATCHES)
    return [
        f"- `…-lz4`, `…-uncompressed`: {each} GB of records of 1 KiB, in batches of 64 KiB, {PARTITIONS} partitions",
        f"- `…-<n>rec`: records of {_SMALL_VALUE_BYTES} bytes in batches of {counts}, up to"
        f" {sizes.small_batches_gb:g} GB, {PARTITIONS} partitions",
        f"- `…-topics`: {sizes.many_topics:,} topics of one partition with {_RECORDS_OF_MANY} records each",
        "- No record comes twice; of each, 40 % is random and the rest text",
    ]
