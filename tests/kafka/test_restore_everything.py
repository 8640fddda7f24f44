"""Everything that a log can hold, from Apache Kafka into both kinds of cluster and back: a hash over it is equal.

One backup of several topics serves all the tests here: codecs, transactions, times, headers, compacted logs with
batches that lost all their records, LogAppendTime, records of 10 MB, and partitions without any.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import PartitionIndex, TopicName, TopicPartition
from tests.backup_commands import Backups, produce
from tests.eventually import eventually
from tests.kafka.secured_kafka import SecuredKafka
from tests.kafka.test_restore import back_up, consumed, create, write_everything
from tests.kafka.test_restore_groups import commit
from tests.peers.quorate_cluster import QuorateCluster
from tests.restore_commands import Restores, all_records, client_of, topic_configs

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]

TOPICS = {"all-kinds": 2, "all-compacted": 1, "all-stamped": 1, "all-large": 1, "all-empty": 3}
RECORD_BYTES = 10 * 1024 * 1024
LIMIT_BYTES = RECORD_BYTES + 1_000_000
GROUP = "reader-in-a-hole"


@pytest.fixture(scope="module")
def source(kafka: SecuredKafka) -> Iterator[KafkaClient]:
    with client_of(kafka.bootstrap) as client:
        create(client, "all-kinds", 2, retention_ms="-1")
        write_everything(kafka, "all-kinds")
        fill_compacted(kafka, client)
        create(client, "all-stamped", message_timestamp_type="LogAppendTime")
        produce(kafka.bootstrap, "all-stamped", 200, settings={"compression.type": "lz4", "batch.num.messages": 7})
        create(client, "all-large", max_message_bytes=str(LIMIT_BYTES))
        write_large(kafka)
        create(client, "all-empty", 3)
        yield client


@pytest.fixture(scope="module")
def backups(source: KafkaClient, kafka: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> Backups:
    backups = Backups(tmp_path_factory.mktemp("everything"), kafka.bootstrap)
    back_up(backups, *TOPICS)
    return backups


@pytest.fixture(scope="module")
def quorate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateCluster]:
    with QuorateCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def fill_compacted(kafka: SecuredKafka, client: KafkaClient) -> None:
    """Of the first batches all records go; their headers stay, since they are their producers' last."""
    create(client, "all-compacted", cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01")
    for first in range(3):
        write_keys(kafka, [(f"key-{number}", f"{first}-{number}") for number in range(5)])
    write_keys(kafka, [(f"key-{number % 5}", None if number == 7 else str(number)) for number in range(20)])

    def is_compacted() -> bool:
        write_keys(kafka, [("last", "x")])  # Closes the segment before it, in its time.
        return sum(each.key != b"last" for each in all_records(client, "all-compacted", 0)) == 5

    eventually(is_compacted, "the log cleaner to run", within_s=120)
    client.configs.alter_topic("all-compacted", values={"min.compaction.lag.ms": "86400000", "segment.ms": "86400000"})
    headers = [batch.header for batch in batches_of(client, "all-compacted")]
    assert any(header is not None and header.record_count == 0 for header in headers), headers
    commit(kafka, GROUP, "all-compacted", {0: 3})


def write_keys(kafka: SecuredKafka, records: list[tuple[str, str | None]]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "linger.ms": 20})
    for key, value in records:
        producer.produce("all-compacted", value, key, 0)
    assert producer.flush(30) == 0


def write_large(kafka: SecuredKafka) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "message.max.bytes": LIMIT_BYTES})
    for number in range(2):
        producer.produce("all-large", os.urandom(RECORD_BYTES), str(number), 0)
    assert producer.flush(120) == 0


def batches_of(client: KafkaClient, topic: str) -> list[Any]:
    start, end = bounds(client, topic, 0)
    return [batch for piece in client.fetch_range(topic, 0, start, end) for batch in piece.walk()]


def bounds(client: KafkaClient, topic: str, partition: int) -> tuple[int, int]:
    name = TopicPartition(TopicName(topic), PartitionIndex(partition))
    start, end = client.offsets.earliest([name])[name].offset, client.offsets.latest([name])[name].offset
    assert start is not None
    assert end is not None
    return start, end


def digest(client: KafkaClient, topic: str, partition: int, *, with_offsets: bool = False) -> tuple[int, str]:
    """How many records there are, and a hash over everything that they have."""
    found = hashlib.sha256()
    records = all_records(client, topic, partition)
    for each in records:
        everything = (each.timestamp, each.key, each.value, each.headers)
        found.update(msgspec.msgpack.encode((each.offset, *everything) if with_offsets else everything))
    return len(records), found.hexdigest()


def assert_equal(
    source: KafkaClient, target: KafkaClient, names: dict[str, str], *, with_offsets: bool = False
) -> None:
    for topic, partitions in TOPICS.items():
        for partition in range(partitions):
            expected = digest(source, topic, partition, with_offsets=with_offsets)
            assert digest(target, names[topic], partition, with_offsets=with_offsets) == expected
            if with_offsets:
                assert bounds(target, names[topic], partition) == bounds(source, topic, partition)


def renamed(suffix: str) -> dict[str, str]:
    return {topic: f"{topic}-{suffix}" for topic in TOPICS}


def next_value(client: KafkaClient, topic: str) -> bytes | None:
    """Of the record that the group reads next."""
    (at,) = (at for name, at in client.groups.offsets(GROUP).items() if name.topic == topic)
    return next(each.value for each in all_records(client, topic, 0) if each.offset >= at.offset)


def test_into_kafka(kafka: SecuredKafka, source: KafkaClient, backups: Backups) -> None:
    names = renamed("back")

    Restores(backups, kafka.bootstrap).run_in_process(topic_mapping=names, consumer_groups={"include": [GROUP]})

    assert_equal(source, source, names)
    assert consumed(kafka.bootstrap, names["all-kinds"], 0) == consumed(kafka.bootstrap, "all-kinds", 0)
    assert next_value(source, "all-compacted-back") == next_value(source, "all-compacted") == b"15"
    for topic in TOPICS:
        assert topic_configs(source, names[topic]) == topic_configs(source, topic)


def test_into_quorate_and_from_there_into_kafka(
    kafka: SecuredKafka, source: KafkaClient, quorate: QuorateCluster, backups: Backups, tmp_path: Path
) -> None:
    Restores(backups, quorate.bootstrap).run_in_process(consumer_groups={"include": [GROUP]})

    with client_of(quorate.bootstrap) as target:
        assert_equal(source, target, {topic: topic for topic in TOPICS})
        assert next_value(target, "all-compacted") == b"15"

    across = Backups(tmp_path, quorate.bootstrap)
    back_up(across, *TOPICS)
    Restores(across, kafka.bootstrap).run_in_process(topic_mapping=renamed("across"))

    assert_equal(source, source, renamed("across"))


def test_into_quorate_at_the_offsets_that_they_had(
    kafka: SecuredKafka, source: KafkaClient, quorate: QuorateCluster, backups: Backups
) -> None:
    names = renamed("kept")

    Restores(backups, quorate.bootstrap).run_in_process(
        topic_mapping=names, preserve_offsets=True, consumer_groups={"include": [GROUP]}
    )

    with client_of(quorate.bootstrap) as target:
        assert_equal(source, target, names, with_offsets=True)
        committed = {name.topic: at.offset for name, at in target.groups.offsets(GROUP).items()}
        assert committed[TopicName("all-compacted-kept")] == 3
        assert next_value(target, "all-compacted-kept") == b"15"
    # By a client that is not ours, too: it has to find its way over the holes.
    for topic, partition in (("all-kinds", 0), ("all-kinds", 1), ("all-compacted", 0)):
        assert consumed(quorate.bootstrap, names[topic], partition) == consumed(kafka.bootstrap, topic, partition)


def test_kafka_cannot_keep_offsets_and_is_refused_before_anything_is_written(
    kafka: SecuredKafka, source: KafkaClient, backups: Backups
) -> None:
    before = set(source.cluster.metadata().topics)

    with pytest.raises(QuorateError, match="the target cannot take records at their original offsets"):
        Restores(backups, kafka.bootstrap).run_in_process(topic_mapping=renamed("never"), preserve_offsets=True)

    assert set(source.cluster.metadata().topics) == before
