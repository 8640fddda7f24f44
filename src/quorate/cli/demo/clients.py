"""What the demo does through a stock Kafka client: fill a topic, read it as a group, and tell whether two are equal."""

import hashlib
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from quorate.kernel.errors import QuorateError

_TIMEOUT_S = 60
_CHUNK = 1000
#: That a node is gone is the demo's own news.
_QUIET: dict[str, Any] = {"log_level": 0}


def create_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers} | _QUIET)
    admin.create_topics([NewTopic(topic, num_partitions=partitions)])[topic].result()


def leader_of(bootstrap_servers: str, topic: str, partition: int) -> int:
    """The node that the cluster names as the partition's leader."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers} | _QUIET)
    found: int = admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions[partition].leader
    return found


class StockProducer:
    """Idempotent and ``acks=all``, as the client's defaults are; every record must be acknowledged."""

    def __init__(self, bootstrap_servers: str) -> None:
        settings = {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer(settings | _QUIET)
        #: The offset after the last acknowledged record of each partition.
        self.ends: dict[int, int] = {}

    def fill(self, topic: str, records: int) -> None:
        for number in range(records):
            # Bytes that do not compress, so that there is something to copy.
            value = f"order {number} ".encode() + hashlib.shake_128(str(number).encode()).digest(1000)
            self._producer.produce(topic, value, f"customer-{number % 97}", on_delivery=self._acknowledged)
            self._producer.poll(0)
        self._producer.flush()

    def write_one(self, topic: str, partition: int) -> None:
        """Returns when the record is acknowledged."""
        self._producer.produce(topic, b"after the kill", partition=partition, on_delivery=self._acknowledged)
        if self._producer.flush(_TIMEOUT_S):
            raise QuorateError(f"a record of {topic}-{partition} was not acknowledged within {_TIMEOUT_S} s")

    def _acknowledged(self, error: Any, message: Any) -> None:
        if error is not None:
            raise QuorateError(f"a record was not acknowledged: {error}")
        self.ends[message.partition()] = max(self.ends.get(message.partition(), 0), message.offset() + 1)


def consume_as_group(bootstrap_servers: str, group: str, topic: str, records: int) -> int:
    """Read everything as a member of the group and commit; how many different records there were."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: set[bytes | None] = set()
    deadline = time.monotonic() + _TIMEOUT_S
    while len(values) < records:
        if time.monotonic() > deadline:
            raise QuorateError(f"only {len(values)} of {records} records came back")
        values.update(message.value() for message in consumer.consume(_CHUNK, timeout=1) if message.error() is None)
    consumer.commit(asynchronous=False)
    consumer.close()
    return len(values)


def committed_offsets(bootstrap_servers: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group} | _QUIET)
    try:
        found = consumer.committed([TopicPartition(topic, index) for index in range(partitions)], _TIMEOUT_S)
    finally:
        consumer.close()
    return {each.partition: each.offset for each in found}


def digest_of(bootstrap_servers: str, topic: str, ends: dict[int, int]) -> str:
    """A SHA-256 over everything of every record up to these ends: partition, offset, time, key, value, headers."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "demo-compare"} | _QUIET)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    seen: dict[int, list[bytes]] = {partition: [] for partition in ends}
    deadline = time.monotonic() + _TIMEOUT_S
    try:
        while any(len(seen[partition]) < end for partition, end in ends.items()):
            if time.monotonic() > deadline:
                raise QuorateError(f"{topic} has fewer records than it should: {[len(each) for each in seen.values()]}")
            for message in consumer.consume(_CHUNK, timeout=1):
                _take(message, ends, seen)
    finally:
        consumer.close()
    return hashlib.sha256(b"".join(each for partition in sorted(seen) for each in seen[partition])).hexdigest()


def _take(message: Any, ends: dict[int, int], seen: dict[int, list[bytes]]) -> None:
    if message.error() is None and message.offset() < ends[message.partition()]:
        seen[message.partition()].append(_everything_of(message))


def _everything_of(message: Any) -> bytes:
    parts = (message.partition(), message.offset(), message.timestamp(), message.key(), message.headers())
    return repr(parts).encode() + bytes(message.value())
