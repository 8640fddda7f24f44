"""Restores into a Quorate node on local Spark, with the commands that users type."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from quorate.client.kafka_client import KafkaClient
from tests.backup_commands import SMALL_RANGES, Backups, create_topics, produce
from tests.peers.quorate_node import QuorateNode
from tests.restore_commands import Restores, all_records, client_of, topic_configs, without_offsets

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(300)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        create_topics(
            node.bootstrap,
            NewTopic("orders", 3, config={"retention.ms": "86400000", "cleanup.policy": "compact,delete"}),
            NewTopic("empty", 2),
        )
        for index, codec in enumerate(CODECS):
            settings = {"compression.type": codec, "batch.num.messages": 50}
            produce(node.bootstrap, "orders", 1000, first=1000 * index, settings=settings)
        yield node


@pytest.fixture(scope="module")
def backups(node: QuorateNode, tmp_path_factory: pytest.TempPathFactory) -> Backups:
    backups = Backups(tmp_path_factory.mktemp("backup"), node.bootstrap)
    done = backups.backup(topics={"include": ["orders", "empty"]}, backup=SMALL_RANGES)
    assert done.status == 0, done
    return backups


@pytest.fixture
def restores(node: QuorateNode, backups: Backups) -> Restores:
    return Restores(backups, node.bootstrap)


@pytest.fixture(scope="module")
def client(node: QuorateNode) -> Iterator[KafkaClient]:
    with client_of(node.bootstrap) as client:
        yield client


def test_restored_topics_equal_their_sources(restores: Restores, client: KafkaClient) -> None:
    done = restores.restore(topic_mapping={"orders": "orders-back", "empty": "empty-back"})

    assert done.status == 0, done
    assert "2 topics, 5,000 records" in done.output
    for partition in range(3):
        expected = all_records(client, "orders", partition)
        assert expected
        assert without_offsets(all_records(client, "orders-back", partition)) == without_offsets(expected)
    assert all_records(client, "empty-back", 1) == []
    assert topic_configs(client, "orders-back") == topic_configs(client, "orders")
    assert topic_configs(client, "empty-back") == topic_configs(client, "empty")


def test_dry_run_counts_and_changes_nothing(restores: Restores, client: KafkaClient) -> None:
    before = set(client.cluster.metadata().topics)

    done = restores.restore(
        "--dry-run",
        topics={"include": ["orders"]},
        topic_mapping={"orders": "orders-dry"},
        preserve_offsets=True,
        topic_configs={"retention.bytes": "10"},
    )

    assert done.status == 0, done
    assert "orders as orders-dry: 3 partitions, 5,000 records" in done.output
    assert "dry run, nothing was written" in done.output
    assert "5,000 records at their original offsets" in done.output
    assert "warning: topic orders-dry keeps 10 bytes of a partition (retention.bytes), and more are" in done.output
    assert set(client.cluster.metadata().topics) == before


def test_target_that_is_not_empty_is_refused_before_anything_is_written(
    restores: Restores, client: KafkaClient
) -> None:
    before = set(client.cluster.metadata().topics)

    done = restores.restore(topic_mapping={"empty": "empty-refused"})

    assert done.status == 1
    assert done.errors.splitlines()[-1] == (
        "quorate: target topic orders is not empty: delete it, or restore orders under another name "
        "with restore.topic_mapping"
    )
    assert set(client.cluster.metadata().topics) == before


def test_finished_restore_that_is_run_again_says_that_it_is_finished(restores: Restores, client: KafkaClient) -> None:
    names = {"orders": "orders-once", "empty": "empty-once"}
    first = restores.restore(topic_mapping=names)
    assert first.status == 0, first
    before = all_records(client, "orders-once", 0)

    again = restores.restore(topic_mapping=names)
    machine = restores.restore("--format", "json", topic_mapping=names)

    assert again.status == 0, again
    assert " is finished since " in again.output
    assert "nothing was written" in again.output
    assert "starting Spark" not in again.errors
    assert machine.json["finished_ms"] > 0
    assert all_records(client, "orders-once", 0) == before


def test_damaged_object_is_refused_before_anything_is_written(
    node: QuorateNode, backups: Backups, client: KafkaClient, tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(backups.folder / "storage", tmp_path / "storage")
    copy = Backups(tmp_path, node.bootstrap)
    path = copy.object_paths()[0]
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 0x01
    path.write_bytes(damaged)

    done = Restores(copy, node.bootstrap).restore(topic_mapping={"orders": "orders-damaged", "empty": "empty-damaged"})

    assert done.status == 1
    assert path.name in done.errors
    assert "nothing was restored" in done.errors
    assert "orders-damaged" not in client.cluster.metadata().topics
