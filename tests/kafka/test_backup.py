"""Backups of a real Apache Kafka of three brokers whose ids are no indexes: leaders that die and move, transactions,
compaction, truncation, rot."""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from quorate.backup.manifests.manifest import GapReason
from quorate.backup.spark.copy.run_report import RunReport
from quorate.backup.spark.session.job import SparkDriver
from quorate.client.admin.topics import NewTopic
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId, PartitionIndex, TopicName
from tests.backup_commands import SMALL_RANGES, Backups, consume, produce
from tests.eventually import eventually
from tests.kafka.leadership import Leadership
from tests.kafka.secured_kafka import NODE_IDS, SecuredKafka
from tests.spark_session import SparkWithEvent, local_spark, run_in_process

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.peer, pytest.mark.timeout(1800 if os.environ.get("QUORATE_HEAVY") else 300)]

IS_HEAVY = bool(os.environ.get("QUORATE_HEAVY"))
TOPICS = 251 if IS_HEAVY else 12
MOST_PARTITIONS = 12 if IS_HEAVY else 4
RECORDS = 60 if IS_HEAVY else 300
# Many fetches long: a task that has all its data after the first one would not notice that the leader died.
LONG_RECORDS = 24_000
RANGE_BYTES = (1 if IS_HEAVY else 64) * 1024 * 1024
BYTES_PER_SECOND = 2_500_000
READ_COMMITTED = {"isolation.level": "read_committed"}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkDriver]:
    with local_spark() as driver:
        yield driver


@pytest.fixture
def leadership(kafka: SecuredKafka) -> Iterator[Leadership]:
    leadership = Leadership(kafka.bootstrap)
    yield leadership
    leadership.close()


class Runs:
    def __init__(self, kafka: SecuredKafka, spark: SparkDriver, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.backups = Backups(folder, kafka.bootstrap)
        self._kafka = kafka
        self._spark = spark
        self._folder = folder

    def of_another_backup(self) -> "Runs":
        return Runs(self._kafka, self._spark, self._folder / "another")

    def run(
        self,
        *topics: str,
        before: Callable[[], None] = lambda: None,
        during: Callable[[], None] = lambda: None,
        **backup: Any,
    ) -> RunReport:
        settings = {"mode": "incremental", **SMALL_RANGES, **backup}
        config = self.backups.write_config(topics={"include": list(topics)}, backup=settings)
        report = run_in_process(self.backups, config, lambda: SparkWithEvent(self._spark, before, during))
        assert report is not None
        return report


@pytest.fixture
def runs(kafka: SecuredKafka, spark: SparkDriver, tmp_path: Path) -> Runs:
    return Runs(kafka, spark, tmp_path)


def create(client: KafkaClient, name: str, partitions: int = 1, **configs: str) -> None:
    client.topics.create(
        [
            NewTopic(
                name=TopicName(name),
                partitions=partitions,
                replication_factor=3,
                configs={key.replace("_", "."): value for key, value in configs.items()},
            )
        ]
    )


def logs_of(kafka: SecuredKafka, topic: str, partition: int) -> list[bytes]:
    """The partition's log files as each broker has them."""
    found = []
    for node in kafka.nodes.values():
        folder = node.data_dir / f"{topic}-{partition}"
        found.append(b"".join(path.read_bytes() for path in sorted(folder.glob("*.log"))))
    return found


def test_backup_is_complete_while_brokers_are_killed_and_leaders_moved(
    kafka: SecuredKafka, client: KafkaClient, leadership: Leadership, runs: Runs, name: str
) -> None:
    topics = {f"{name}-t{number:03d}": number % MOST_PARTITIONS + 1 for number in range(TOPICS)}
    for topic, partitions in topics.items():
        create(client, topic, partitions)
        produce(kafka.bootstrap, topic, RECORDS * partitions, value_size=1000)
    longest = next(iter(topics))
    produce(kafka.bootstrap, longest, LONG_RECORDS, first=RECORDS, value_size=1000)
    disturbances = itertools.chain.from_iterable(_disturb(kafka, leadership, topics) for _ in itertools.count())
    ticks = itertools.count()

    def disturb() -> None:
        if next(ticks) % 5 == 0:
            next(disturbances)()

    try:
        limits: dict[str, Any] = {"range_bytes": RANGE_BYTES, "rate_limit_bytes_per_second": BYTES_PER_SECOND}
        report = runs.run(f"{name}-t*", during=disturb, **limits)
    finally:
        _bring_all_back(kafka)

    assert report.state == "complete", report
    assert report.failures == []
    assert report.topics == TOPICS
    assert report.leaders_followed > 0
    for topic, partitions in topics.items():
        for partition in range(partitions):
            copied = runs.backups.raw(topic, partition)
            assert copied
            assert copied in logs_of(kafka, topic, partition), f"{topic}-{partition} is not what the brokers have"
    listed = runs.backups.list_backups("--backup-id", "nightly")
    assert listed.output.splitlines()[-1] == f"{TOPICS} topics, 0 failures"


def test_open_transaction_ends_the_copy_and_the_next_run_goes_on(
    kafka: SecuredKafka, client: KafkaClient, runs: Runs, name: str
) -> None:
    create(client, name)
    committed = _transactional(kafka, f"{name}-a")
    committed.begin_transaction()
    committed.produce(name, value=b"committed")
    committed.commit_transaction()
    aborted = _transactional(kafka, f"{name}-b")
    aborted.begin_transaction()
    aborted.produce(name, value=b"aborted")
    aborted.flush()
    aborted.abort_transaction()
    hanging = _transactional(kafka, f"{name}-c")
    hanging.begin_transaction()
    hanging.produce(name, value=b"open at first")
    hanging.flush()
    produce(kafka.bootstrap, name, 5)

    report = runs.run(name)

    partition = runs.backups.manifest().topics[0].partitions[0]
    assert (report.state, partition.end_offset) == ("complete", 4)  # Two records, each with its marker.
    assert [each.first_offset for each in partition.aborted_transactions] == [2]
    assert runs.backups.raw(name, 0) == logs_of(kafka, name, 0)[0][: len(runs.backups.raw(name, 0))]
    hanging.commit_transaction()
    eventually(lambda: runs.run(name).state == "complete" and _end(runs) == 11, "the rest to be copied")
    values = [value for _, _, value in runs.backups.records(name, 0)]
    assert values[:3] == [b"committed", b"aborted", b"open at first"]
    assert [value for value in values if value != b"aborted"] == [
        value for _, _, value in consume(kafka.bootstrap, name, 0, READ_COMMITTED)
    ]


def test_offsets_that_compaction_removed_are_no_gap(
    kafka: SecuredKafka, client: KafkaClient, runs: Runs, name: str
) -> None:
    create(
        client,
        name,
        cleanup_policy="compact",
        segment_bytes="1048576",
        min_cleanable_dirty_ratio="0.01",
        segment_ms="1000",
    )
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "batch.num.messages": 10, "linger.ms": 5})
    for number in range(20_000):
        producer.produce(name, key=f"key-{number % 10}", value=bytes(200))
        producer.poll(0)
    producer.flush()
    produce(kafka.bootstrap, name, 1, first=77)  # Rolls the segment, so that the others can be cleaned.
    eventually(
        lambda: all(len(log) < 3_000_000 for log in logs_of(kafka, name, 0)), "the log cleaner to run", within_s=180
    )

    before = consume(kafka.bootstrap, name, 0)

    report = runs.run(name, range_bytes=2 * 1024 * 1024)

    assert report.state == "complete"
    assert report.gaps == []
    held = runs.backups.records(name, 0)
    assert len(held) < 20_000
    # The cleaner may go on meanwhile.
    assert set(consume(kafka.bootstrap, name, 0)) <= set(held) <= set(before)
    assert [offset for offset, *_ in held] == sorted({offset for offset, *_ in held if offset is not None})
    assert runs.backups.manifest().topics[0].partitions[0].end_offset == 20_001


def test_truncation_by_an_unclean_election_supersedes_the_copied_tail(
    kafka: SecuredKafka, client: KafkaClient, leadership: Leadership, runs: Runs, name: str
) -> None:
    """And a run in the middle of which it happens says so."""

    # Large enough to be copied in several ranges.
    write = partial(produce, kafka.bootstrap, name, value_size=300_000)

    def elect_uncleanly() -> None:
        kafka.nodes[7].kill()
        kafka.nodes[100].restart()
        eventually(lambda: leadership.leader(name) == 100, "the unclean election", within_s=60)
        write(15, first=2000)

    client.topics.create(
        [
            NewTopic(
                name=TopicName(name),
                assignments={PartitionIndex(0): [NodeId(7), NodeId(100)]},
                configs={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"},
            )
        ]
    )
    write(10)
    eventually(lambda: leadership.in_sync(name) == {7, 100}, "both in sync", within_s=60)
    try:
        kafka.nodes[100].kill()
        eventually(lambda: leadership.in_sync(name) == {7}, "the follower out of sync", within_s=60)
        write(10, first=1000)
        assert runs.run(name).record_count == 20

        disturbed = runs.of_another_backup()
        between = disturbed.run(name, before=elect_uncleanly)
        healed = disturbed.run(name)
        report = runs.run(name)
    finally:
        _bring_all_back(kafka)

    assert (report.state, report.truncations) == ("complete", 1)
    partition = runs.backups.manifest().topics[0].partitions[0]
    assert [(tail.start_offset, tail.end_offset) for tail in partition.superseded] == [(10, 20)]
    assert runs.backups.records(name, 0) == consume(kafka.bootstrap, name, 0)
    assert runs.backups.verify().status == 0
    assert [each.message for each in between.failures] == [
        f"{name}-0 was truncated to offset 10 while it was copied: run the backup again"
    ]
    assert (healed.state, healed.truncations) == ("complete", 1)
    assert disturbed.backups.records(name, 0) == runs.backups.records(name, 0)


def test_batch_that_rotted_on_the_broker_is_a_gap_and_the_rest_is_copied(
    kafka: SecuredKafka, client: KafkaClient, leadership: Leadership, runs: Runs, name: str
) -> None:
    create(client, name)
    produce(kafka.bootstrap, name, 500, settings={"batch.num.messages": 10, "linger.ms": 20})
    expected = consume(kafka.bootstrap, name, 0)
    leader = leadership.leader(name)
    assert leader is not None
    (log,) = (kafka.nodes[leader].data_dir / f"{name}-0").glob("*.log")
    with log.open("r+b") as file:
        file.seek(log.stat().st_size // 2)
        value = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([value[0] ^ 0xFF]))

    report = runs.run(name)

    (found,) = report.gaps
    gap = found.gap
    assert (report.state, gap.reason) == ("partial", GapReason.UNREADABLE)
    assert 0 < gap.start_offset < gap.end_offset <= gap.start_offset + 10
    assert "cannot be read" in report.failures[0].message
    kept = [record for record in expected if record[0] not in range(gap.start_offset, gap.end_offset)]
    assert runs.backups.records(name, 0) == kept
    assert runs.backups.manifest().topics[0].partitions[0].end_offset == 500


def _disturb(kafka: SecuredKafka, leadership: Leadership, topics: dict[str, int]) -> Iterator[Callable[[], None]]:
    """Move leaders, kill a broker, bring it back; then the next one. The longest is moved while a broker starts, too:
    that may take as long as its copy."""
    longest, *others = list(topics)[:3]
    for node_id in NODE_IDS:
        for topic in [longest, *others]:
            yield partial(_try_to_move, leadership, topic, node_id)
        yield kafka.nodes[node_id].kill
        yield kafka.nodes[node_id].launch
        for running in [each for each in NODE_IDS if each != node_id] * 2:
            yield partial(_try_to_move, leadership, longest, running)
        yield kafka.nodes[node_id].wait_until_ready


def _try_to_move(leadership: Leadership, topic: str, to: int) -> None:
    """A broker that has just come back may not be ready for it, which is no matter."""
    with contextlib.suppress(QuorateError):
        if to in leadership.in_sync(topic):
            leadership.move(topic, 0, to)


def _bring_all_back(kafka: SecuredKafka) -> None:
    for node in kafka.nodes.values():
        if not node.process.running:
            node.launch()
        node.wait_until_ready()


def _transactional(kafka: SecuredKafka, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions()
    return producer


def _end(runs: Runs) -> int:
    return runs.backups.manifest().topics[0].partitions[0].end_offset
