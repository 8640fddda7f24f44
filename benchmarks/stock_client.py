"""The same work through a stock client: confluent-kafka with its defaults, ``acks=all`` and a linger of 5 ms."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, Message, Producer

from benchmarks.connection import RequestFailed
from benchmarks.generator import Load

CONSUME_COUNT = 500
CONSUME_TIMEOUT_S = 30.0
FLUSH_TIMEOUT_S = 60.0


def produce(bootstrap: str, topic: str, values: Sequence[bytes], *, seconds: float) -> Load:
    """Hand records over for the given time, then wait until every one is acknowledged."""
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
    cpu_before_s, started = time.process_time(), time.perf_counter()
    count = 0
    while time.perf_counter() - started < seconds:
        try:
            producer.produce(topic, values[count % len(values)], on_delivery=on_delivery)
            count += 1
        except BufferError:
            producer.poll(0.01)
        if count % 1000 == 0:
            producer.poll(0)
    left = producer.flush(FLUSH_TIMEOUT_S)
    elapsed_s = time.perf_counter() - started
    if left or failures:
        raise RequestFailed(f"{left} records never acknowledged, {len(failures)} failed: {failures[:1]}")
    return Load(
        requests=count,
        records=count,
        size_bytes=sum(len(value) for value in values) * count // len(values),
        seconds=elapsed_s,
        generator_cpu_seconds=time.process_time() - cpu_before_s,
    )


@contextmanager
def consumer_at_first_records(bootstrap: str, topic: str) -> Iterator[tuple[Consumer, int]]:
    """A consumer of a new group that has its first records, and how many: joining a group is not throughput."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"bench-{uuid4()}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        yield consumer, len(_consume_some(consumer))
    finally:
        consumer.close()


def consume(consumer: Consumer, count: int) -> Load:
    """Read so many more records."""
    cpu_before_s, started = time.process_time(), time.perf_counter()
    records = size_bytes = 0
    while records < count:
        messages = _consume_some(consumer)
        records += len(messages)
        size_bytes += sum(len(message.value() or b"") for message in messages)
    return Load(
        requests=records,
        records=records,
        size_bytes=size_bytes,
        seconds=time.perf_counter() - started,
        generator_cpu_seconds=time.process_time() - cpu_before_s,
    )


def _consume_some(consumer: Consumer) -> list[Message]:
    deadline = time.perf_counter() + CONSUME_TIMEOUT_S
    while time.perf_counter() < deadline:
        messages = consumer.consume(CONSUME_COUNT, timeout=1.0)
        for message in messages:
            if message.error() is not None:
                raise RequestFailed(f"the consumer was told: {message.error()}")
        if messages:
            return list(messages)
    raise RequestFailed(f"the consumer got nothing for {CONSUME_TIMEOUT_S:.0f} s")
