"""What is measured: the list of cases, and the names by which they are chosen and reported. Pure."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

KIB = 1024
VALUE_SIZE_BYTES = 1 * KIB
# As the Java producer's max.in.flight.requests.per.connection.
REQUESTS_IN_FLIGHT = 5
BATCH_SIZES_BYTES = {"1rec": 1, "16k": 16 * KIB, "64k": 64 * KIB, "1m": 1024 * KIB}
CONNECTION_COUNTS = (1, 4)


class Unit(StrEnum):
    """What a figure counts."""

    MEBIBYTES_PER_SECOND = "MiB/s"
    REQUESTS_PER_SECOND = "requests/s"
    RECORDS_PER_SECOND = "records/s"
    MICROSECONDS = "µs"
    SECONDS = "s"
    MEBIBYTES = "MiB"
    SHARE = "share"
    CORE_SHARE = "of a core"

    @property
    def more_is_better(self) -> bool:
        return self.endswith("/s")


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """Write for a while with the raw generator, then read back what was written."""

    batch_name: str
    connections: int
    is_encrypted: bool = False

    @property
    def suffix(self) -> str:
        return f"{'tls-' if self.is_encrypted else ''}{self.batch_name}-x{self.connections}"

    @property
    def produce_name(self) -> str:
        return f"produce-{self.suffix}"

    @property
    def fetch_name(self) -> str:
        return f"fetch-{self.suffix}"

    @property
    def produce_unit(self) -> Unit:
        return Unit.REQUESTS_PER_SECOND if self.batch_name == "1rec" else Unit.MEBIBYTES_PER_SECOND


TRANSFERS = tuple(
    Transfer(batch_name=batch_name, connections=connections)
    for batch_name in BATCH_SIZES_BYTES
    for connections in CONNECTION_COUNTS
)
#: Nothing is said of TLS with small requests: there the work is that of the request, whatever it is sent over.
TLS_TRANSFERS = tuple(
    Transfer(batch_name=batch_name, connections=connections, is_encrypted=True)
    for batch_name in ("64k", "1m")
    for connections in CONNECTION_COUNTS
)
LATENCY_P50, LATENCY_P99 = "latency-p50", "latency-p99"
STOCK_PRODUCE, STOCK_CONSUME = "stock-produce", "stock-consume"
MEMORY, MEMORY_NOW = "memory-peak", "memory-pss"
START = "start-to-first-ack"
# What share of its CPU time a system still spent on compiling itself when it counted as warm.
COMPILING = "compiling-when-warm"
# Measured: a broker's JVM spends half of its time on compiling at first, and never quite stops.
WARM_COMPILING_SHARE = 0.12
QUICK_TRANSFERS = tuple(
    transfer for transfer in TRANSFERS if transfer.batch_name in ("64k", "1m") and transfer.connections == 1
)
QUICK_TLS_TRANSFERS = tuple(transfer for transfer in TLS_TRANSFERS if transfer.connections == 1)


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """A line that the ratio of Quorate to Apache Kafka must reach in each measure whose name begins so."""

    text: str
    prefixes: tuple[str, ...]
    at_least: float | None = None
    at_most: float | None = None

    def covers(self, measure: str) -> bool:
        return measure.startswith(self.prefixes)

    def is_met_by(self, ratio: float) -> bool:
        return (self.at_least is None or ratio >= self.at_least) and (self.at_most is None or ratio <= self.at_most)


def _of_every_size(what: str) -> tuple[str, ...]:
    return tuple(f"{what}-{batch_name}-" for batch_name in BATCH_SIZES_BYTES)


GOALS = (
    Goal(text="produce, batches of every size: >= 1.0", prefixes=_of_every_size("produce"), at_least=1.0),
    Goal(text="fetch, batches of every size: >= 1.0", prefixes=_of_every_size("fetch"), at_least=1.0),
    Goal(
        text="produce over TLS, 64 KiB and 1 MiB batches: >= 1.0",
        prefixes=("produce-tls-64k", "produce-tls-1m"),
        at_least=1.0,
    ),
    Goal(
        text="fetch over TLS, 64 KiB and 1 MiB batches: >= 1.0",
        prefixes=("fetch-tls-64k", "fetch-tls-1m"),
        at_least=1.0,
    ),
    Goal(text="peak memory: <= 0.3", prefixes=(MEMORY,), at_most=0.3),
    Goal(text="start to first acknowledged write: <= 0.3", prefixes=(START,), at_most=0.3),
)

#: What has no TLS in it, whatever else it may be.
PLAIN_MEASURES = (
    *(name for transfer in TRANSFERS for name in (transfer.produce_name, transfer.fetch_name)),
    *(LATENCY_P50, LATENCY_P99, STOCK_PRODUCE, STOCK_CONSUME, MEMORY, MEMORY_NOW, START),
)
TLS_MEASURES = tuple(name for transfer in TLS_TRANSFERS for name in (transfer.produce_name, transfer.fetch_name))


def is_judged(measure: str) -> bool:
    return any(goal.covers(measure) for goal in GOALS)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which measures a run takes: all, or those whose names begin with one of the given words."""

    words: tuple[str, ...] = ()

    def wants(self, measure: str) -> bool:
        return not self.words or measure.startswith(self.words)

    def wants_any(self, measures: Iterable[str]) -> bool:
        return any(map(self.wants, measures))
