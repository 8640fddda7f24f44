"""Topic configs that act in the background, on a real node: retention, compaction, and changes of them at run time."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.eventually import eventually
from tests.peers.quorate_node import QuorateNode


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    configs = {"log.retention.check.interval.ms": 50, "log.cleaner.backoff.ms": 50}
    folder: Path = tmp_path_factory.mktemp("node")
    with QuorateNode.start(folder, configs=configs) as started:
        yield started


def create(node: QuorateNode, name: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    config = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, num_partitions=1, config=config)])[name].result()


def alter(node: QuorateNode, topic: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result()


def produce(node: QuorateNode, topic: str, records: list[tuple[str, str | None]], timestamp_ms: int = 0) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0, "batch.num.messages": 1})
    for key, value in records:
        producer.produce(topic, key=key, value=value, timestamp=timestamp_ms)
    assert producer.flush(30) == 0


def watermarks(node: QuorateNode, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "none"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        return low, high
    finally:
        consumer.close()


def read_all(node: QuorateNode, topic: str) -> list[tuple[int, str, str | None]]:
    """Offset, key and value of every record that is still there."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "none",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, str, str | None]] = []
    try:
        while (message := consumer.poll(10)) is not None and message.error() is None:
            key, value = message.key(), message.value()
            assert key is not None
            found.append((message.offset() or 0, key.decode(), None if value is None else value.decode()))
        return found
    finally:
        consumer.close()


def test_records_older_than_the_retention_time_go_and_the_log_start_moves(node: QuorateNode) -> None:
    create(node, "by-age", retention_ms="3600000")
    hours_ago = int((time.time() - 7200) * 1000)
    produce(node, "by-age", [("a", "old"), ("b", "old")], timestamp_ms=hours_ago)
    eventually(lambda: watermarks(node, "by-age") == (2, 2), "the old records to go")
    produce(node, "by-age", [("c", "new")])
    assert read_all(node, "by-age") == [(2, "c", "new")]


def test_a_changed_retention_time_acts_at_once(node: QuorateNode) -> None:
    create(node, "changed", retention_ms="-1")
    hours_ago = int((time.time() - 7200) * 1000)
    produce(node, "changed", [("a", "old")], timestamp_ms=hours_ago)
    assert watermarks(node, "changed") == (0, 1)
    alter(node, "changed", "retention.ms", "1000")
    eventually(lambda: watermarks(node, "changed") == (1, 1), "the old record to go")


def test_the_oldest_segments_go_when_a_partition_is_too_large(node: QuorateNode) -> None:
    create(node, "by-size", retention_bytes="1500000", segment_bytes="1048576")
    produce(node, "by-size", [(str(number), "x" * 100_000) for number in range(40)])
    eventually(lambda: watermarks(node, "by-size")[0] > 0, "the oldest segments to go")
    low_before, high = watermarks(node, "by-size")
    assert high == 40
    remaining = read_all(node, "by-size")
    low_after, _ = watermarks(node, "by-size")  # More may have gone meanwhile.
    offsets = [offset for offset, _, _ in remaining]
    assert offsets == list(range(offsets[0], 40))
    assert low_before <= offsets[0] <= low_after
    assert len(remaining) * 100_000 >= 1_400_000


def test_a_compacted_topic_keeps_the_last_record_of_each_key_at_its_offset(node: QuorateNode) -> None:
    create(node, "compacted", cleanup_policy="compact", segment_ms="50", min_cleanable_dirty_ratio="0.01")
    produce(node, "compacted", [(f"key-{number % 3}", f"value-{number}") for number in range(30)])
    produce(node, "compacted", [("key-1", None)])

    def compacted() -> list[tuple[int, str, str | None]] | None:
        produce(node, "compacted", [("last", "x")])  # Closes the segment before it, in its time.
        found = [record for record in read_all(node, "compacted") if record[1] != "last"]
        return found if len(found) <= 3 else None

    assert eventually(compacted, "the log to be compacted") == [
        (27, "key-0", "value-27"),
        (29, "key-2", "value-29"),
        (30, "key-1", None),
    ]


def test_a_topic_made_compacted_at_run_time_is_compacted(node: QuorateNode) -> None:
    create(node, "later-compacted", segment_ms="50", min_cleanable_dirty_ratio="0.01")
    produce(node, "later-compacted", [("k", str(number)) for number in range(10)])
    alter(node, "later-compacted", "cleanup.policy", "compact")

    def compacted() -> bool:
        produce(node, "later-compacted", [("last", "x")])
        return [value for _, key, value in read_all(node, "later-compacted") if key == "k"] == ["9"]

    eventually(compacted, "the log to be compacted")


def test_compression_type_of_the_topic_decides_what_is_stored(node: QuorateNode) -> None:
    create(node, "squeezed", compression_type="zstd")
    produce(node, "squeezed", [("k", "x" * 50_000)])
    stored = sum(path.stat().st_size for path in (node.data_dir / "squeezed-0").glob("*.log"))
    assert stored < 5_000
    assert read_all(node, "squeezed") == [(0, "k", "x" * 50_000)]
