"""The cluster that all contenders read: three nodes of Apache Kafka, its topics, and the log files on its disk.

Topics have one replica: reading goes to the leaders only, and the page cache holds every log once.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.backup.cases import VALUE_SIZE_BYTES
from benchmarks.systems import KAFKA_JVM_OPTIONS
from tests.peers.apache_kafka import ApacheKafka

NODE_IDS = (7, 100, 4001)
_HEAP_MB = 1024
_BATCH_BYTES = 64 * 1024
_LINGER_MS = 50
_TIMEOUT_S = 60.0
_PREPARED_VALUES = 4096
# Of a value: what does not compress. The rest is text, so that lz4 brings it to about a half.
_RANDOM_SHARE = 0.4


class Source:
    def __init__(self, cluster: ApacheKafka) -> None:
        self._cluster = cluster
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @property
    def pids(self) -> list[int]:
        return [node.pid for node in self._cluster.nodes.values()]

    def create_topics(self, topics: Sequence[str], partitions: int) -> None:
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

        settings = {"batch.size": _BATCH_BYTES, "linger.ms": _LINGER_MS, "compression.type": compression}
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

    def log_files(self, topic: str) -> list[Path]:
        """Every segment of the topic's logs, on whichever node it is."""
        folders = [node.data_dir for node in self._cluster.nodes.values()]
        return sorted(path for folder in folders for path in folder.glob(f"{topic}-*/*.log"))


@contextmanager
def start_source() -> Iterator[Source]:
    options = (f"-Xms{_HEAP_MB}m", *KAFKA_JVM_OPTIONS)
    with ApacheKafka.start(NODE_IDS, heap_mb=_HEAP_MB, jvm_options=options) as cluster:
        yield Source(cluster)


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
