"""Topics of a cluster, whichever it is: made, filled with the same records in every run, and asked where they end."""

import random
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.cases import VALUE_SIZE_BYTES

BATCH_BYTES = 64 * 1024
LINGER_MS = 50
_TIMEOUT_S = 60.0
_PREPARED_VALUES = 4096
# Of a value: what does not compress. The rest is text, so that lz4 brings it to about a half.
_RANDOM_SHARE = 0.4


class Topics:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, topics: Sequence[str], partitions: int) -> None:
        configs = {"min.insync.replicas": "1"}
        wanted = [NewTopic(topic, partitions, 1, config=configs) for topic in topics]
        for created in self._admin.create_topics(wanted).values():
            created.result(_TIMEOUT_S)

    def fill(self, topic: str, records: int, *, partitions: int, compression: str = "none") -> None:
        """Records over the partitions in turn; all of them are acknowledged when this returns."""
        failures: list[str] = []

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(str(error))

        settings = {"batch.size": BATCH_BYTES, "linger.ms": LINGER_MS, "compression.type": compression}
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", **settings})
        values = _values()
        for number in range(records):
            value, partition = values[number % len(values)], number % partitions
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

    def end_offsets(self, topic: str, partitions: int) -> tuple[int, ...]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "ends"})
        try:
            return tuple(
                int(consumer.get_watermark_offsets(TopicPartition(topic, partition), _TIMEOUT_S)[1])
                for partition in range(partitions)
            )
        finally:
            consumer.close()


def _values() -> list[bytes]:
    """All different, so that no compressor finds one record inside another; the same in every run."""
    chance = random.Random(1)
    words = [chance.randbytes(4).hex() for _ in range(64)]
    values = []
    for _ in range(_PREPARED_VALUES):
        text = " ".join(chance.choices(words, k=VALUE_SIZE_BYTES // 9 + 1)).encode()
        incompressible = chance.randbytes(int(VALUE_SIZE_BYTES * _RANDOM_SHARE))
        values.append((incompressible + text)[:VALUE_SIZE_BYTES])
    return values
