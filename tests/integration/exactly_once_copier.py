"""An application that copies a topic exactly once: it consumes, transforms and produces in transactions.

Whatever fails, it goes on from what is committed; only a fault of the program itself ends it.
"""

import threading
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

TIMEOUT_S = 30.0
BATCH_SIZE = 40


class Copier(threading.Thread):
    """One instance. All instances share the group, each has a transactional id of its own."""

    def __init__(self, bootstrap: str, name: str, *, source: str, target: str, group: str) -> None:
        super().__init__(name=name, daemon=True)
        self._servers = bootstrap
        self._source = source
        self._target = target
        self._group = group
        self._stopping = threading.Event()
        self.committed = 0
        self.aborted = 0
        self.failures: list[str] = []

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._copy_until_a_failure()
            except KafkaException as error:
                self.failures.append(str(error))

    def _copy_until_a_failure(self) -> None:
        """A failure ends both clients: the next ones start with what is committed."""
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": self.name,
                "transaction.timeout.ms": 10_000,
                "log_level": 0,
            }
        )
        producer.init_transactions(TIMEOUT_S)
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": self._group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6_000,
                "log_level": 0,
            }
        )
        consumer.subscribe([self._source])
        try:
            while not self._stopping.is_set():
                batch = [message for message in consumer.consume(BATCH_SIZE, 0.2) if message.error() is None]
                if batch:
                    self._copy(producer, consumer, batch)
        finally:
            consumer.close()

    def _copy(self, producer: Producer, consumer: Consumer, batch: Sequence[Message]) -> None:
        producer.begin_transaction()
        try:
            for message in batch:
                value = message.value()
                assert value is not None
                producer.produce(self._target, b"copy of " + value, key=message.key())
            offsets = _next_offsets(batch)
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
            producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            self.aborted += 1
            if error.args[0].txn_requires_abort():
                producer.abort_transaction(TIMEOUT_S)
            raise
        self.committed += 1


def _next_offsets(batch: Sequence[Message]) -> list[TopicPartition]:
    ends: dict[tuple[str, int], int] = {}
    for message in batch:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        ends[topic, partition] = offset + 1
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()]
