"""Topics of a cluster, whichever it is: made, filled with the same records in every run, and asked where they end."""

import mmap
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.contenders.records import values
from benchmarks.contenders.shapes import Shape

BATCH_BYTES = 64 * 1024
LINGER_MS = 50
_TIMEOUT_S = 60.0
_TOPICS_AT_ONCE = 200
_BATCH_LENGTH = struct.Struct(">8xi")
_RECORD_COUNT = struct.Struct(">57xi")
# Of the records that a batch is to have, batches have at least this share: the last ones of a partition have less.
_MIN_FILLED_SHARE = 0.9


class WrongTopicError(Exception):
    """A topic is not what it was to be."""


class Topics:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, topics: Sequence[str], partitions: int) -> None:
        configs = {"min.insync.replicas": "1"}
        for start in range(0, len(topics), _TOPICS_AT_ONCE):
            wanted = [
                NewTopic(topic, partitions, 1, config=configs) for topic in topics[start : start + _TOPICS_AT_ONCE]
            ]
            for created in self._admin.create_topics(wanted).values():
                created.result(_TIMEOUT_S)

    def make(self, shape: Shape) -> None:
        """All topics of the shape, with their records."""
        self.create(shape.topics, shape.partitions)
        self.fill(shape)
        if found := {end for end in self.end_offsets(shape) if end != shape.end_offsets}:
            raise WrongTopicError(f"{shape.topics[0]} ends at {found} and not at {shape.end_offsets}")

    def fill(self, shape: Shape, topics: Sequence[str] = ()) -> None:
        """Records over the topics, and over the partitions of each, in turn; all are acknowledged when this returns."""
        failures: list[str] = []

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(str(error))

        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", **_batching(shape)})
        filled = topics or shape.topics
        made = values(shape.value_size_bytes)
        for number in range(shape.records_per_topic * len(filled)):
            turn, which = divmod(number, len(filled))
            topic, value, partition = filled[which], next(made), turn % shape.partitions
            while True:
                try:
                    producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.05)
            if number % 1000 == 0:
                producer.poll(0)
        left = producer.flush(_TIMEOUT_S)
        assert not left, f"{left} records were never acknowledged"
        assert not failures, failures[0]

    def end_offsets(self, shape: Shape, topics: Sequence[str] = ()) -> list[tuple[int, ...]]:
        """Of each topic."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "ends"})
        try:
            return [
                tuple(
                    int(consumer.get_watermark_offsets(TopicPartition(topic, partition), _TIMEOUT_S)[1])
                    for partition in range(shape.partitions)
                )
                for topic in topics or shape.topics
            ]
        finally:
            consumer.close()


def check_batches(shape: Shape, log_files: Iterable[Path]) -> float:
    """How many records a batch in the logs has; raises ``WrongTopicError`` where they are not those of the shape."""
    batches = records = 0
    for path in log_files:
        if path.stat().st_size:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as log:
                position = 0
                while position < len(log):
                    records += _RECORD_COUNT.unpack_from(log, position)[0]
                    position += _BATCH_LENGTH.unpack_from(log, position)[0] + _BATCH_LENGTH.size
                    batches += 1
    mean = records / max(batches, 1)
    wanted = shape.batch_records
    if wanted is not None and not _MIN_FILLED_SHARE * wanted <= mean <= wanted:
        raise WrongTopicError(f"{shape.topics[0]} has {mean:.1f} records a batch and not {wanted}")
    return mean


def _batching(shape: Shape) -> dict[str, str | int]:
    settings: dict[str, str | int] = {"compression.type": shape.producer_compression}
    if shape.batch_records is None:
        return {**settings, "batch.size": BATCH_BYTES, "linger.ms": LINGER_MS}
    # Nobody waits for a record that makes a batch too large.
    return {**settings, "batch.num.messages": shape.batch_records, "linger.ms": LINGER_MS}
