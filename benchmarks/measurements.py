"""One run of each kind of case against one running system. Each makes its own topic and removes it afterwards."""

import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from random import Random
from statistics import quantiles
from uuid import uuid4

from benchmarks import cases, generator, process_usage, stock_client, wire
from benchmarks.cases import Transfer, Unit
from benchmarks.channels import Batches
from benchmarks.connection import Connection, RequestFailed
from benchmarks.samples import MIB, Sample, Stopwatch
from benchmarks.systems import Durability, System

START_TIMEOUT_S = 60.0
RETRY_INTERVAL_S = 0.002
REMOVAL_TIMEOUT_S = 3.0
WARM_UP_STEP_SECONDS = 0.4
# More than the caches of a core hold, so that what is sent is not always at hand, as in an application.
PREPARED_BYTES = 16 * MIB
STOCK_VALUES = 64
# So much is written at most in one run: with more, the disk is measured and not the system.
MAX_BYTES = 1024 * MIB


def start(system: System) -> float:
    """Launch the system; return the seconds until it acknowledged a write to a topic made for it."""
    batch = prepared_batches("1rec").content[0]
    started = time.perf_counter()
    deadline = started + START_TIMEOUT_S
    system.launch()
    while True:
        try:
            with Connection(system.address) as connection:
                connection.create_topic("first", 1)
                connection.write_until_acknowledged("first", 0, batch, deadline)
            return time.perf_counter() - started
        except (OSError, RequestFailed) as error:
            if time.perf_counter() > deadline:
                raise RequestFailed(f"{system.name} did not start:\n{system.output()[-2000:]}") from error
            time.sleep(RETRY_INTERVAL_S)


def warm_up(
    system: System, durability: Durability, transfers: Sequence[Transfer], *, with_stock_client: bool, timeout_s: float
) -> Sample:
    """Use the system in every shape that will be timed, until it hardly compiles any more.

    A JVM gains speed for a long time: timed too early, it would look slow. What never compiles is done after one round.
    """
    deadline = time.perf_counter() + timeout_s
    while True:
        busy_before_s = process_usage.cpu_seconds(system.pid)
        compiling_before_s = process_usage.compiler_cpu_seconds(system.pid)
        _warm_up_round(system, transfers)
        if with_stock_client:
            list(stock(system, durability, seconds=WARM_UP_STEP_SECONDS, configs=()))
        compiling_s = process_usage.compiler_cpu_seconds(system.pid) - compiling_before_s
        share = compiling_s / max(process_usage.cpu_seconds(system.pid) - busy_before_s, 0.01)
        if share <= cases.WARM_COMPILING_SHARE or time.perf_counter() > deadline:
            return Sample(
                measure=_of_run(cases.COMPILING, system),
                durability=durability,
                system=system.name,
                unit=Unit.SHARE,
                value=share,
            )


def _warm_up_round(system: System, transfers: Sequence[Transfer]) -> None:
    for case in transfers:
        # Without the topic configs of the run: the disk would hold the work up, and with it the compiler.
        with _temporary_topic(system, case.connections, prepared_batches(case.batch_name), ()) as topic:
            written = _produce(system, topic, case, WARM_UP_STEP_SECONDS)
            if system.serves_reads:
                _fetch(system, topic, case, written, WARM_UP_STEP_SECONDS)


def transfer(
    system: System, durability: Durability, case: Transfer, *, produce_seconds: float, fetch_seconds: float
) -> Iterator[Sample]:
    """Write with the raw generator, then read back what is now in the page cache."""
    batches = prepared_batches(case.batch_name)
    with _temporary_topic(system, case.connections, batches, system.topic_configs) as topic:
        watch = Stopwatch(system, durability)
        written = _produce(system, topic, case, produce_seconds)
        yield watch.sample(case.produce_name, case.produce_unit, written)
        if not system.serves_reads:
            return
        watch = Stopwatch(system, durability)
        read = _fetch(system, topic, case, written, fetch_seconds)
        yield watch.sample(case.fetch_name, Unit.MEBIBYTES_PER_SECOND, read)


def latency(system: System, durability: Durability, *, seconds: float) -> Iterator[Sample]:
    """Single-record writes, each waited for: the median and the slowest hundredth."""
    batches = prepared_batches("1rec")
    with _temporary_topic(system, 1, batches, system.topic_configs) as topic:
        watch = Stopwatch(system, durability)
        load, latencies_us = generator.produce_one_by_one(system.address, topic, batches, seconds=seconds)
        cuts = quantiles(latencies_us, n=100)
        yield from watch.latency_samples({cases.LATENCY_P50: cuts[49], cases.LATENCY_P99: cuts[98]}, load)


def stock(
    system: System, durability: Durability, *, seconds: float, configs: Sequence[tuple[str, str]]
) -> Iterator[Sample]:
    """The same through confluent-kafka: what an application sees, its client's own cost included."""
    bootstrap = f"{system.address[0]}:{system.address[1]}"
    random = Random(1)
    values = [random.randbytes(cases.VALUE_SIZE_BYTES) for _ in range(STOCK_VALUES)]
    with _temporary_topic(system, 1, None, configs) as topic:
        watch = Stopwatch(system, durability)
        written = stock_client.produce(bootstrap, topic, values, seconds=seconds)
        yield watch.sample(cases.STOCK_PRODUCE, Unit.RECORDS_PER_SECOND, written)
        with stock_client.consumer_at_first_records(bootstrap, topic) as (consumer, first_count):
            watch = Stopwatch(system, durability)
            read = stock_client.consume(consumer, written.records - first_count)
            yield watch.sample(cases.STOCK_CONSUME, Unit.RECORDS_PER_SECOND, read)


def memory(system: System, durability: Durability) -> Iterator[Sample]:
    """Over the life of the process, so under all the load it was given."""
    for measure, size_bytes in (
        (cases.MEMORY, process_usage.peak_memory_bytes(system.pid)),
        (cases.MEMORY_NOW, process_usage.proportional_memory_bytes(system.pid)),
    ):
        yield Sample(
            measure=_of_run(measure, system),
            durability=durability,
            system=system.name,
            unit=Unit.MEBIBYTES,
            value=size_bytes / MIB,
        )


def _of_run(measure: str, system: System) -> str:
    return measure if system.certificates is None else f"{measure}-tls"


def _produce(system: System, topic: str, case: Transfer, seconds: float) -> generator.Load:
    address, trust = _listener(system, case)
    return generator.produce(
        address,
        topic,
        prepared_batches(case.batch_name),
        connections=case.connections,
        depth=cases.REQUESTS_IN_FLIGHT,
        seconds=seconds,
        max_bytes=MAX_BYTES,
        trust=trust,
    )


def _fetch(system: System, topic: str, case: Transfer, written: generator.Load, seconds: float) -> generator.Load:
    address, trust = _listener(system, case)
    batches = prepared_batches(case.batch_name)
    return generator.fetch(address, topic, batches, written.end_offsets, seconds=seconds, trust=trust)


def _listener(system: System, case: Transfer) -> tuple[tuple[str, int], ssl.SSLContext | None]:
    if not case.is_encrypted:
        return system.address, None
    assert system.certificates is not None, "a run over TLS has systems with certificates"
    return system.tls_address, system.certificates.trust


@cache
def prepared_batches(batch_name: str) -> Batches:
    """Batches of random values, all different, the same for both systems."""
    count = wire.records_that_fit(cases.BATCH_SIZES_BYTES[batch_name], cases.VALUE_SIZE_BYTES)
    random = Random(batch_name)
    now_ms = int(time.time() * 1000)
    batches = -(-PREPARED_BYTES // (count * cases.VALUE_SIZE_BYTES))
    content = [wire.build_batch(count, cases.VALUE_SIZE_BYTES, random, now_ms) for _ in range(batches)]
    rests = [memoryview(batch + wire.PRODUCE_TAIL) for batch in content]
    return Batches(content=content, records_per_batch=count, rests=rests)


@contextmanager
def _temporary_topic(
    system: System, partitions: int, primer: Batches | None, configs: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """A new topic; with a primer, each partition already has its leader, its files and one batch of them."""
    topic = f"bench-{uuid4().hex[:8]}"
    with Connection(system.address) as connection:
        connection.create_topic(topic, partitions, configs)
        if primer is not None:
            deadline = time.perf_counter() + START_TIMEOUT_S
            for partition in range(partitions):
                connection.write_until_acknowledged(topic, partition, primer.content[0], deadline)
    try:
        yield topic
    finally:
        with Connection(system.address) as connection:
            connection.delete_topic(topic)
        _wait_for_removal(system, topic)


def _wait_for_removal(system: System, topic: str) -> None:
    """Let the files go first: writing them back would slow the other system's turn."""
    deadline = time.perf_counter() + REMOVAL_TIMEOUT_S
    while any(system.data_dir.rglob(f"{topic}-*")) and time.perf_counter() < deadline:
        time.sleep(0.02)
