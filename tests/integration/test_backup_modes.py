"""Runs that follow each other, and what may happen to the cluster between and during them."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from quorate.backup.errors import CommitConflict
from quorate.backup.manifests.manifest import GapReason
from quorate.backup.spark.copy.run_report import RunReport
from quorate.backup.spark.session.job import SparkDriver
from tests.backup_commands import SMALL_RANGES, Backups, consume, create_topics, produce
from tests.eventually import eventually
from tests.peers.quorate_node import QuorateNode
from tests.spark_session import SparkWithEvent, local_spark, run_in_process

pytest.importorskip("pyspark")

INCREMENTAL = {"mode": "incremental", **SMALL_RANGES}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkDriver]:
    with local_spark() as driver:
        yield driver


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        yield node


class Scene:
    """One test's topic and backup on the shared node and session."""

    def __init__(self, node: QuorateNode, spark: SparkDriver, folder: Path, topic: str) -> None:
        self.bootstrap = node.bootstrap
        self.topic = topic
        self.admin = AdminClient({"bootstrap.servers": node.bootstrap})
        self.backups = Backups(folder, node.bootstrap)
        self.spark: Callable[[], SparkDriver] = lambda: spark

    def create(self, partitions: int = 2) -> None:
        create_topics(self.bootstrap, NewTopic(self.topic, partitions))

    def produce(self, count: int, *, first: int = 0, partition: int | None = None) -> None:
        produce(self.bootstrap, self.topic, count, first=first, partition=partition)

    def run(self, *, spark: Callable[[], SparkDriver] | None = None, **backup: Any) -> RunReport:
        config = self.backups.write_config(topics={"include": [self.topic]}, backup=INCREMENTAL | backup)
        report = run_in_process(self.backups, config, spark or self.spark)
        assert report is not None
        return report

    def delete_records_below(self, offset: int, partition: int = 0) -> None:
        deleted = self.admin.delete_records([TopicPartition(self.topic, partition, offset)])
        for each in deleted.values():
            each.result()

    def delete_topic(self) -> None:
        self.admin.delete_topics([self.topic])[self.topic].result()
        eventually(lambda: self.topic not in self.admin.list_topics(timeout=10).topics, "the topic to be gone")

    def assert_holds_all(self, partitions: int = 2) -> None:
        for partition in range(partitions):
            assert self.backups.records(self.topic, partition) == consume(self.bootstrap, self.topic, partition)


@pytest.fixture
def scene(node: QuorateNode, spark: SparkDriver, tmp_path: Path, request: pytest.FixtureRequest) -> Scene:
    return Scene(node, spark, tmp_path, f"topic-{request.node.name}"[:200])


def test_incremental_run_copies_only_what_is_new(scene: Scene) -> None:
    scene.create()
    scene.produce(3000)
    first = scene.run()
    objects = scene.backups.object_paths()
    scene.produce(500, first=3000)

    second = scene.run()

    assert (first.record_count, second.record_count) == (3000, 500)
    assert set(objects) < set(scene.backups.object_paths())
    assert scene.backups.manifest().number == 2
    scene.assert_holds_all()


def test_snapshot_run_copies_everything_again(scene: Scene) -> None:
    scene.create()
    scene.produce(1000)
    scene.run(mode="snapshot")

    assert scene.run(mode="snapshot").record_count == 1000
    scene.assert_holds_all()


def test_run_without_news_needs_no_spark(scene: Scene) -> None:
    def no_spark() -> SparkDriver:
        raise AssertionError("Spark was started for nothing")

    scene.create()
    scene.produce(10)
    scene.run()

    assert scene.run(spark=no_spark).record_count == 0
    assert scene.backups.manifest().number == 2


def test_continuous_round_without_news_commits_no_manifest(scene: Scene) -> None:
    scene.create()
    scene.produce(10)
    scene.run(mode="continuous")
    config = scene.backups.write_config(topics={"include": [scene.topic]}, backup={"mode": "continuous"})

    assert run_in_process(scene.backups, config, scene.spark, commit_unchanged=False) is None
    assert scene.backups.catalog().numbers() == [1]


def test_snapshot_does_not_overshoot_its_captured_end(scene: Scene) -> None:
    scene.create(1)
    scene.produce(1000)
    late = SparkWithEvent(scene.spark(), before=lambda: scene.produce(1000, first=1000))

    report = scene.run(spark=lambda: late)

    assert report.record_count == 1000
    assert scene.backups.manifest().topics[0].partitions[0].end_offset == 1000
    assert scene.run().record_count == 1000
    scene.assert_holds_all(1)


def test_records_deleted_between_runs_are_a_gap(scene: Scene) -> None:
    scene.create(1)
    scene.produce(1000)
    scene.run()
    scene.produce(1000, first=1000)
    scene.delete_records_below(1500)

    report = scene.run()

    assert [(gap.gap.start_offset, gap.gap.end_offset, gap.gap.reason) for gap in report.gaps] == [
        (1000, 1500, GapReason.RETENTION)
    ]
    assert report.state == "complete"
    held = [offset for offset, _, _ in scene.backups.records(scene.topic, 0) if offset is not None]
    assert held[:1000] == list(range(1000))
    assert held[-1] == 1999
    assert set(range(1500, 2000)) <= set(held)


def test_records_deleted_during_a_run_are_a_gap_and_the_run_goes_on(scene: Scene) -> None:
    scene.create(1)
    scene.produce(2000)
    deleting = SparkWithEvent(scene.spark(), before=lambda: scene.delete_records_below(700))

    report = scene.run(spark=lambda: deleting)

    assert [(gap.gap.start_offset, gap.gap.end_offset) for gap in report.gaps] == [(0, 700)]
    assert report.state == "complete"
    assert {offset for offset, _, _ in scene.backups.records(scene.topic, 0)} >= set(range(700, 2000))
    listed = scene.backups.list_backups("--backup-id", "nightly")
    assert f"gap: {scene.topic}-0 offsets 0 to 699 (retention)" in listed.output


def test_recreated_topic_is_a_new_generation_and_never_mixed(scene: Scene) -> None:
    scene.create()
    scene.produce(300)
    scene.run()
    scene.delete_topic()
    scene.create()
    scene.produce(100, first=9000)

    scene.run()

    lives = [(topic.generation, topic.topic_id) for topic in scene.backups.manifest().topics]
    assert [generation for generation, _ in lives] == [1, 2]
    assert lives[0][1] != lives[1][1]
    scene.assert_holds_all()


def test_topic_recreated_during_a_run_fails_alone(scene: Scene) -> None:
    scene.create()
    scene.produce(300)

    def recreate() -> None:
        scene.delete_topic()
        scene.create()

    replaced = SparkWithEvent(scene.spark(), before=recreate)

    report = scene.run(spark=lambda: replaced)

    assert report.state == "partial"
    assert {failure.partition for failure in report.failures} == {0, 1}
    assert scene.run().state == "complete"


def test_partitions_added_between_runs_are_copied(scene: Scene) -> None:
    scene.create()
    scene.produce(300)
    scene.run()
    scene.admin.create_partitions([NewPartitions(scene.topic, 4)])[scene.topic].result()
    scene.produce(300, first=300, partition=3)

    report = scene.run()

    assert (report.partitions, report.record_count) == (4, 300)
    scene.assert_holds_all(4)


def test_unknown_topic_is_a_failure_and_the_rest_is_committed(scene: Scene) -> None:
    scene.create()
    scene.produce(300)
    config = scene.backups.write_config(topics={"include": [scene.topic, "no-such-topic"]}, backup=INCREMENTAL)

    report = run_in_process(scene.backups, config, scene.spark)

    assert report is not None
    assert report.state == "partial"
    assert [(failure.topic, failure.message) for failure in report.failures] == [
        ("no-such-topic", "topic no-such-topic does not exist")
    ]
    assert report.record_count == 300


def test_two_runs_started_together_one_wins_and_the_other_says_so(scene: Scene) -> None:
    scene.create()
    scene.produce(300)
    overtaken = SparkWithEvent(scene.spark(), before=lambda: _ignore(scene.run()))

    with pytest.raises(CommitConflict, match="another run has committed manifest 1 of backup nightly first"):
        scene.run(spark=lambda: overtaken)

    assert scene.backups.catalog().numbers() == [1]
    scene.assert_holds_all()


def test_killed_python_workers_are_replaced_and_every_offset_is_there_once(scene: Scene) -> None:
    scene.create()
    scene.produce(8000)
    killed: set[int] = set()

    def kill_workers() -> None:
        if len(killed) < 2:
            for pid in _python_workers() - killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)

    fragile = SparkWithEvent(scene.spark(), during=kill_workers)

    report = scene.run(spark=lambda: fragile, rate_limit_bytes_per_second=1_000_000)

    assert killed
    assert report.state == "complete"
    assert report.record_count == 8000
    scene.assert_holds_all()


def _python_workers() -> set[int]:
    """Those that a daemon of this process's Spark has forked."""
    commands = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if b"quorate.backup.spark.session.worker_daemon" in command:
                commands[int(entry.name)] = parent
    return {pid for pid, parent in commands.items() if parent in commands and _descends_from_here(parent)}


def _descends_from_here(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            return False
    return False


def _ignore(report: RunReport) -> None:
    assert report.state == "complete"
