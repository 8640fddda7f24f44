"""``quorate compact`` on local Spark, over backups of a real node: what is restored before and after is the same."""

import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from quorate.backup.spark.upkeep.maintenance import CompactReport, CompactRun
from quorate.backup.spark.upkeep.verification import take_inventory, verify_on_spark
from quorate.client.kafka_client import KafkaClient
from tests.backup_commands import QUORATE, Backups, consume, create_topics, produce, run_quorate
from tests.peers.quorate_node import QuorateNode
from tests.restore_commands import QuietRestoreWatcher, Restores, all_records, client_of, without_offsets
from tests.spark_session import InThisProcess, SparkWithEvent, run_in_process

pytest.importorskip("pyspark")
IS_HEAVY = bool(os.environ.get("QUORATE_HEAVY"))
pytestmark = pytest.mark.timeout(1800 if IS_HEAVY else 300)

TOPIC = "orders"
PARTITIONS = 2
INCREMENTAL = {"mode": "incremental"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        create_topics(node.bootstrap, NewTopic(TOPIC, PARTITIONS))
        yield node


@pytest.fixture(scope="module")
def client(node: QuorateNode) -> Iterator[KafkaClient]:
    with client_of(node.bootstrap) as client:
        yield client


@pytest.fixture(scope="module")
def backups(node: QuorateNode, tmp_path_factory: pytest.TempPathFactory) -> Backups:
    """Five runs with batches of several codecs, and with transactions, of which some are aborted."""
    backups = Backups(tmp_path_factory.mktemp("backup"), node.bootstrap)
    for run in range(5):
        codec = ("none", "lz4", "zstd", "gzip", "snappy")[run]
        settings = {"compression.type": codec, "batch.num.messages": 20}
        produce(node.bootstrap, TOPIC, 200, first=200 * run, settings=settings)
        write_transaction(node.bootstrap, f"aborted {run}", is_aborted=True)
        write_transaction(node.bootstrap, f"kept {run}", is_aborted=False)
        run_in_process(backups, config_of(backups), InThisProcess)
    return backups


def write_transaction(bootstrap_servers: str, text: str, *, is_aborted: bool) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": "writer"})
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(20):
        producer.produce(TOPIC, key=f"{text} {number}", value=text, partition=number % PARTITIONS)
    if is_aborted:
        producer.flush()
        producer.abort_transaction()
    else:
        producer.commit_transaction()


def config_of(backups: Backups) -> Path:
    return backups.write_config(topics={"include": [TOPIC]}, backup=INCREMENTAL)


def compact(backups: Backups, spark: InThisProcess | SparkWithEvent | None = None) -> CompactReport:
    run = CompactRun(backups.location, backups.catalog(), lambda: spark or InThisProcess())
    return run.run(QuietRestoreWatcher(), min_segment_bytes=2**26, max_segment_bytes=2**27)


def restored_digest(backups: Backups, node: QuorateNode, client: KafkaClient, target: str, manifest: int) -> str:
    """Over everything of every record that comes back."""
    Restores(backups, node.bootstrap).run_in_process(topic_mapping={TOPIC: target}, manifest=manifest)
    digest = hashlib.sha256()
    for partition in range(PARTITIONS):
        records = without_offsets(all_records(client, target, partition))
        assert records
        digest.update(repr(records).encode())
    return digest.hexdigest()


def test_what_is_restored_before_and_after_is_the_same_and_everything_verifies_deeply(
    backups: Backups, node: QuorateNode, client: KafkaClient
) -> None:
    before = backups.manifest()
    segments = len(backups.object_paths())
    done = run_quorate(
        "compact", "--storage", backups.url, "--backup-id", before.backup_id, "--master", "local[2]", "--format", "json"
    )

    assert done.status == 0, done
    after = backups.manifest()
    assert (done.json["compacted_from"], after.number) == (before.number, before.number + 1)
    assert (done.json["segments_before"], done.json["segments_after"]) == (segments, PARTITIONS)
    assert len(after.object_names()) == PARTITIONS
    for ours, theirs in zip(after.topics[0].partitions, before.topics[0].partitions, strict=True):
        assert ours.aborted_transactions == theirs.aborted_transactions
        assert theirs.aborted_transactions
        assert (ours.gaps, ours.leader_epochs, ours.end_offset) == (
            theirs.gaps,
            theirs.leader_epochs,
            theirs.end_offset,
        )

    digests = {
        restored_digest(backups, node, client, f"restored-{number}", number) for number in (before.number, after.number)
    }
    assert len(digests) == 1
    inventory = take_inventory(backups.catalog())
    assert inventory is not None
    report = verify_on_spark(InThisProcess(), backups.location, inventory, QuietRestoreWatcher())
    assert report.damages == []

    pruned = run_quorate("prune", "--storage", backups.url, "--backup-id", after.backup_id, "--keep-last", "1")
    assert pruned.status == 0, pruned
    assert len(backups.object_paths()) == PARTITIONS
    assert restored_digest(backups, node, client, "restored-pruned", after.number) in digests


def test_a_backup_that_a_compaction_overtakes_commits_on_top_of_it(
    node: QuorateNode, client: KafkaClient, tmp_path: Path
) -> None:
    backups = Backups(tmp_path, node.bootstrap)
    for run in range(2):
        produce(node.bootstrap, TOPIC, 50, first=50 * run)
        run_in_process(backups, config_of(backups), InThisProcess)
    produce(node.bootstrap, TOPIC, 50, first=5000)

    def compact_meanwhile() -> None:
        compact(backups)

    overtaken = SparkWithEvent(InThisProcess(), before=compact_meanwhile)

    report = run_in_process(backups, config_of(backups), lambda: overtaken)

    assert report is not None
    assert report.manifest_number == 4
    assert [each.compacted_from for each in backups.catalog().history()] == [None, None, 2, None]
    restored_digest(backups, node, client, "overtaken", 4)
    for partition in range(PARTITIONS):
        source = consume(node.bootstrap, TOPIC, partition)
        assert [each[1:] for each in consume(node.bootstrap, "overtaken", partition)] == [each[1:] for each in source]


def test_a_compaction_that_a_backup_and_a_compaction_overtake_loses_nothing(node: QuorateNode, tmp_path: Path) -> None:
    backups = Backups(tmp_path, node.bootstrap)
    for run in range(3):
        produce(node.bootstrap, TOPIC, 30, first=30 * run)
        run_in_process(backups, config_of(backups), InThisProcess)

    def run_backup() -> None:
        produce(node.bootstrap, TOPIC, 30, first=9000)
        run_in_process(backups, config_of(backups), InThisProcess)

    on_top = compact(backups, SparkWithEvent(InThisProcess(), before=run_backup))
    assert (on_top.manifest_number, on_top.compacted_from) == (5, 4)
    run_in_process(backups, config_of(backups), InThisProcess)
    raw = [backups.raw(TOPIC, partition) for partition in range(PARTITIONS)]

    def compact_meanwhile() -> None:
        compact(backups)

    beside = compact(backups, SparkWithEvent(InThisProcess(), before=compact_meanwhile))

    assert (beside.compacted_from, beside.faults) == (None, [])
    assert [backups.raw(TOPIC, partition) for partition in range(PARTITIONS)] == raw


def test_a_damaged_segment_stays_where_it_is_and_is_named(node: QuorateNode, tmp_path: Path) -> None:
    backups = Backups(tmp_path, node.bootstrap)
    for run in range(2):
        produce(node.bootstrap, TOPIC, 40, first=40 * run)
        run_in_process(backups, config_of(backups), InThisProcess)
    victim = backups.object_paths()[0]
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)

    report = compact(backups)

    (fault,) = report.faults
    assert victim.name in fault
    assert report.segments_after == PARTITIONS - 1


@pytest.mark.skipif(not IS_HEAVY, reason="starts Spark many times")
def test_killed_at_random_moments_the_backup_is_as_it_was_or_compacted(node: QuorateNode, tmp_path: Path) -> None:
    backups = Backups(tmp_path, node.bootstrap)
    for run in range(3):
        produce(node.bootstrap, TOPIC, 500, first=500 * run)
        run_in_process(backups, config_of(backups), InThisProcess)
    raw = [backups.raw(TOPIC, partition) for partition in range(PARTITIONS)]
    command = [str(QUORATE), "compact", "--storage", backups.url, "--backup-id", "nightly", "--master", "local[2]"]
    for delay_s in (3, 5, 7, 8, 9, 10, 11, 12):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert [backups.raw(TOPIC, partition) for partition in range(PARTITIONS)] == raw
        assert backups.verify().status == 0
