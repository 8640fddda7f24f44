"""What a test asks of any client: to write records, read them, look up offsets, and be a member of a group."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

Acks = Literal[0, 1, "all"]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
OffsetReset = Literal["earliest", "latest"]
Headers = tuple[tuple[str, bytes | None], ...]

# Generous: it only keeps a broken broker from hanging the tests.
DEADLINE_S = 30.0


class Record(NamedTuple):
    """What a producer hands over. The timestamp is given, so that it can be compared on the other side."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()


class StoredRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    record: Record


class Writer(Protocol):
    """A producer that stays open."""

    def write(self, topic: str, records: Sequence[Record], partition: int = 0) -> list[int]:
        """Send, wait until all are acknowledged, and return their offsets (below 0 where acks=0 tells none)."""
        ...

    def close(self) -> None: ...


class Reader(Protocol):
    """A consumer that stays open, by assignment or as a member of a group."""

    def poll(self) -> list[StoredRecord]:
        """Wait for a moment, and return what arrived."""
        ...

    def assignment(self) -> set[tuple[str, int]]: ...

    def commit(self) -> None:
        """Commit the positions of all that was polled."""
        ...

    def close(self) -> None: ...


class Client(Protocol):
    name: str
    codecs: Sequence[Codec]
    writes_null_headers: bool

    def __init__(self, bootstrap: str) -> None: ...

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None: ...

    def writer(self, *, acks: Acks = "all", codec: Codec = "none", idempotent: bool = False) -> Writer: ...

    def reader(self, positions: Mapping[tuple[str, int], int]) -> Reader:
        """A consumer that reads the given partitions from the given offsets, without a group."""
        ...

    def member(
        self, group: str, topics: Sequence[str], *, reset: OffsetReset = "earliest", instance_id: str | None = None
    ) -> Reader: ...

    def log_start_offset(self, topic: str, partition: int) -> int: ...

    def log_end_offset(self, topic: str, partition: int) -> int: ...

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset whose timestamp is at or after the given one; None where there is none."""
        ...
