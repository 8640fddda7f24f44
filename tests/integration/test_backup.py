"""A backup of a Quorate node on local Spark, with the commands that users type."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tests.backup_commands import SMALL_RANGES, Backups, consume, create_topics, produce
from tests.peers.quorate_node import QuorateNode

pytest.importorskip("pyspark")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        create_topics(
            node.bootstrap,
            NewTopic("orders", 3, config={"retention.ms": "86400000"}),
            NewTopic("empty", 2),
            NewTopic("scratch-tmp", 1),
        )
        produce(node.bootstrap, "orders", 6000)
        produce(node.bootstrap, "scratch-tmp", 10)
        _commit_offsets(node.bootstrap)
        yield node


@pytest.fixture(scope="module")
def backups(node: QuorateNode, tmp_path_factory: pytest.TempPathFactory) -> Backups:
    """One backup that the tests of this module look at."""
    backups = Backups(tmp_path_factory.mktemp("backup"), node.bootstrap)
    done = backups.backup(topics={"include": ["*"], "exclude": ["*-tmp"]}, backup=SMALL_RANGES)
    assert done.status == 0, done
    assert "2 topics, 5 partitions, 6,000 records" in done.output
    assert "0 gaps, 0 recreated topics, 0 truncations, 0 failures, leaders followed 0 times" in done.output
    return backups


def test_backup_holds_what_a_consumer_reads(node: QuorateNode, backups: Backups) -> None:
    for partition in range(3):
        expected = consume(node.bootstrap, "orders", partition)
        assert expected
        assert backups.records("orders", partition) == expected
    assert backups.records("empty", 1) == []


def test_stored_batches_are_the_bytes_of_the_log(node: QuorateNode, backups: Backups) -> None:
    for partition in range(3):
        logs = sorted(Path(node.data_dir).rglob(f"orders-{partition}/*.log"))
        assert backups.raw("orders", partition) == b"".join(path.read_bytes() for path in logs)


def test_manifest_has_configs_and_group_offsets(backups: Backups) -> None:
    manifest = backups.manifest()
    orders = manifest.latest("orders")
    assert orders is not None
    assert orders.configs == {"retention.ms": "86400000"}
    assert [(group.group, len(group.offsets)) for group in manifest.groups] == [("readers", 1)]
    committed = manifest.groups[0].offsets[0]
    assert (committed.topic, committed.partition, committed.offset) == ("orders", 1, 42)
    assert committed.metadata.startswith("note")  # The client sends the zero byte at its end as well.
    assert manifest.groups[0].captured_ms <= manifest.created_ms


def test_list_backups_names_the_backup_and_its_topics(backups: Backups) -> None:
    listed = backups.list_backups("--format", "json")
    assert [(row["backup_id"], row["topics"], row["records"], row["state"]) for row in listed.json] == [
        ("nightly", 2, 6000, "complete")
    ]
    shown = backups.list_backups("--backup-id", "nightly")
    assert shown.output.splitlines()[-1] == "2 topics, 0 failures"


def test_deep_verification_on_spark_finds_nothing_wrong(backups: Backups) -> None:
    done = backups.verify("--deep")
    assert done.status == 0, done
    assert "6,000 records" in done.output
    assert "3 objects of 1 manifest, 0 damaged" in done.output


def test_verify_names_each_damaged_and_each_missing_object(node: QuorateNode, backups: Backups, tmp_path: Path) -> None:
    copy = Backups(tmp_path, node.bootstrap)
    _copy_tree(backups.folder / "storage", tmp_path / "storage")
    first, second, *_ = copy.object_paths()
    damaged = bytearray(first.read_bytes())
    damaged[len(damaged) // 2] ^= 0x10
    first.write_bytes(damaged)
    second.unlink()

    done = copy.verify()

    assert done.status == 1
    assert first.name in done.output
    assert second.name in done.output
    assert "2 damaged" in done.output


def _commit_offsets(bootstrap: str) -> None:
    from confluent_kafka import TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("orders", 1, 42, metadata="note")], asynchronous=False)
    consumer.close()


def _copy_tree(source: Path, target: Path) -> None:
    import shutil

    shutil.copytree(source, target)
