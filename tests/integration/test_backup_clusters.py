"""Backups and restores on Spark clusters outside of the command: standalone, losing a worker, and Spark Connect."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tests.backup_commands import SMALL_RANGES, Backups, consume, create_topics, interrupt, produce
from tests.eventually import eventually
from tests.peers.quorate_node import QuorateNode
from tests.restore_commands import Restores

pytest.importorskip("pyspark")

from tests.spark_cluster import connect_server, standalone_cluster

TOPIC = "orders"
#: Not what was restored beside it.
ORIGINAL = {"include": [TOPIC]}
PARTITIONS = 4
SLOW = {"mode": "incremental", "rate_limit_bytes_per_second": 250_000, **SMALL_RANGES}
needs_connect = pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="Spark Connect needs grpcio")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        create_topics(node.bootstrap, NewTopic(TOPIC, PARTITIONS))
        produce(node.bootstrap, TOPIC, 16_000)
        yield node


@pytest.fixture
def backups(node: QuorateNode, tmp_path: Path) -> Backups:
    return Backups(tmp_path, node.bootstrap)


def test_standalone_cluster_that_loses_a_worker_in_the_middle_finishes_the_backup(
    node: QuorateNode, backups: Backups, tmp_path: Path
) -> None:
    with standalone_cluster(tmp_path, workers=2) as cluster:
        process = backups.start_backup(
            "--master", cluster.master, "--orphan-age-hours", "0", topics=ORIGINAL, backup=SLOW
        )
        eventually(lambda: backups.object_paths() or process.poll() is not None, "a first segment", within_s=180)
        assert process.poll() is None, process.communicate()
        cluster.workers[0].kill()
        output, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
        assert "16,000 records" in output
        _assert_whole(node, backups)

        _restore_and_compare(node, backups, "standalone", "--master", cluster.master)


def test_executors_that_can_never_be_had_are_told(backups: Backups, tmp_path: Path) -> None:
    with standalone_cluster(tmp_path, workers=1) as cluster:
        too_much = ("--master", cluster.master, "--conf", "spark.executor.memory=64g")
        process = backups.start_backup(*too_much, topics=ORIGINAL)
        assert process.stderr is not None
        told = next((line for line in process.stderr if "no executor for" in line), "it ended without a word")
        stopped = interrupt(process)

    assert f"{cluster.master} has given none. Each needs spark.executor.memory=64g" in told
    assert stopped.status == 130


def test_master_that_does_not_answer_is_told_at_once(backups: Backups) -> None:
    done = backups.backup("--master", "spark://127.0.0.1:1", topics=ORIGINAL)
    assert done.status == 1
    assert "no Spark master answers at spark://127.0.0.1:1: 127.0.0.1:1: " in done.errors


@needs_connect
def test_spark_connect_server_runs_the_backup_the_deep_verification_and_the_restore(
    node: QuorateNode, backups: Backups, tmp_path: Path
) -> None:
    with connect_server(tmp_path) as url:
        done = backups.backup("--remote", url, topics=ORIGINAL, backup=SMALL_RANGES)
        assert done.status == 0, done
        assert "16,000 records" in done.output
        _assert_whole(node, backups)

        verified = backups.verify("--deep", "--remote", url)
        assert verified.status == 0, verified
        assert "0 damaged" in verified.output

        _restore_and_compare(node, backups, "connect", "--remote", url)

        process = backups.start_backup("--remote", url, topics=ORIGINAL, backup=SLOW | {"mode": "snapshot"})
        before = set(backups.object_paths())
        eventually(lambda: set(backups.object_paths()) - before, "a task to write a segment", within_s=120)
        stopped = interrupt(process)
        assert stopped.status == 130, stopped
        assert "Traceback" not in stopped.errors
        assert backups.catalog().numbers() == [1]


@needs_connect
def test_connect_server_that_is_not_there_is_named(backups: Backups) -> None:
    done = backups.backup("--remote", "sc://127.0.0.1:9")
    assert done.status == 1
    assert "quorate: no Spark Connect session with sc://127.0.0.1:9" in done.errors
    assert "Traceback" not in done.errors


def _restore_and_compare(node: QuorateNode, backups: Backups, target: str, *options: str) -> None:
    done = Restores(backups, node.bootstrap).restore(*options, topic_mapping={TOPIC: target}, preserve_offsets=True)
    assert done.status == 0, done
    assert "16,000 records written" in done.output
    for partition in range(PARTITIONS):
        assert consume(node.bootstrap, target, partition) == consume(node.bootstrap, TOPIC, partition)


def _assert_whole(node: QuorateNode, backups: Backups) -> None:
    for partition in range(PARTITIONS):
        assert backups.records(TOPIC, partition) == consume(node.bootstrap, TOPIC, partition)
