"""What the data source reads is what a stock consumer reads, column for column: from live clusters and from backups."""

import os
from pathlib import Path

import pytest
from confluent_kafka import Producer

from quorate.client.admin.topics import NewTopic
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.ids import TopicName
from tests.backup_commands import BACKUP_ID, Backups, produce
from tests.eventually import eventually
from tests.kafka.conftest import Cluster
from tests.kafka.leadership import Leadership
from tests.kafka.secured_kafka import SecuredKafka
from tests.spark_session import InThisProcess, run_in_process
from tests.table_rows import (
    CODECS,
    RECORDS_PER_CODEC,
    Row,
    consumed_rows,
    in_order,
    plan,
    read,
    read_rows,
    rows_of,
    write_everything,
)

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.peer, pytest.mark.timeout(900 if os.environ.get("QUORATE_HEAVY") else 300)]

IS_HEAVY = bool(os.environ.get("QUORATE_HEAVY"))


def create(client: KafkaClient, name: str, partitions: int = 1, **configs: str) -> None:
    topic = NewTopic(
        name=TopicName(name),
        partitions=partitions,
        replication_factor=-1,
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )
    client.topics.create([topic])


def live(cluster: Cluster, topic: str, **options: str) -> list[Row]:
    return read_rows({"bootstrap_servers": cluster.bootstrap, "topics": topic, **options})


def from_backup(backups: Backups, topic: str, **options: str) -> list[Row]:
    return read_rows({"backup": backups.url, "backup_id": BACKUP_ID, "topics": topic, **options})


def back_up(backups: Backups, topic: str, **backup: str) -> None:
    config = backups.write_config(topics={"include": [topic]}, backup=backup)
    report = run_in_process(backups, config, InThisProcess)
    assert report is not None
    assert report.state == "complete", report


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_every_column_is_what_a_consumer_reads(
    any_cluster: Cluster, any_client: KafkaClient, name: str, timestamp_type: str, tmp_path: Path
) -> None:
    configs = {"message_timestamp_type": timestamp_type, "retention_ms": "-1"}
    create(any_client, name, 2, **configs)
    write_everything(any_cluster.bootstrap, name, 1)
    expected = consumed_rows(any_cluster.bootstrap, name, (0, 1))
    assert len(expected) == RECORDS_PER_CODEC * len(CODECS)
    assert {row.timestamp_type for row in expected} == {int(timestamp_type == "LogAppendTime")}
    assert {row.key for row in expected} >= {None, b""}
    assert any(row.value is None for row in expected)

    assert live(any_cluster, name) == expected
    assert live(any_cluster, name, max_bytes_per_task="65536") == expected
    backups = Backups(tmp_path, any_cluster.bootstrap)
    back_up(backups, name)
    assert from_backup(backups, name) == expected


def test_aborted_and_open_transactions_are_passed_over_unless_asked_for(
    kafka: SecuredKafka, client: KafkaClient, name: str, tmp_path: Path
) -> None:
    create(client, name)
    _write_transactions(kafka, name)
    expected = consumed_rows(kafka.bootstrap, name)
    everything = consumed_rows(kafka.bootstrap, name, isolation="read_uncommitted")
    values = ["plain", "kept-0", "kept-1", "again-0", "kept-2", "again-1", "last stable"]
    assert [row.value for row in expected] == [value.encode() for value in values]
    assert len(everything) > len(expected)

    assert live(kafka, name) == expected
    # Wherever a task begins: between an aborted transaction's records and its marker, and behind both.
    for start in range(1, everything[-1].offset + 1, 2):
        assert live(kafka, name, start_offset=str(start)) == [row for row in expected if row.offset >= start]
    assert live(kafka, name, isolation="read_uncommitted") == everything

    # A backup has an end: there nobody waits for the open transaction, and what stands behind it counts.
    behind = [row for row in everything if row.value == b"behind an open one"]
    for isolation, kept in {"read_committed": expected, "read_uncommitted": expected + behind}.items():
        backups = Backups(tmp_path / isolation, kafka.bootstrap)
        backups.folder.mkdir()
        back_up(backups, name, isolation=isolation)
        assert from_backup(backups, name) == kept
        for start in range(0, everything[-1].offset + 1, 3):
            options = {"start_offset": str(start), "end_offset": str(start + 4)}
            wanted = [row for row in kept if start <= row.offset < start + 4]
            assert from_backup(backups, name, **options) == wanted
    assert from_backup(backups, name, isolation="read_uncommitted") == everything


def test_read_goes_on_when_the_leader_is_killed_in_the_middle(
    kafka: SecuredKafka, client: KafkaClient, name: str
) -> None:
    create(client, name, 1, min_insync_replicas="1")
    produce(kafka.bootstrap, name, 24_000, value_size=1000)
    expected = consumed_rows(kafka.bootstrap, name)
    leadership = Leadership(kafka.bootstrap)
    leader = leadership.leader(name)
    assert leader is not None
    found: list[Row] = []
    (task,) = plan({"bootstrap_servers": kafka.bootstrap, "topics": name})
    try:
        for number, batch in enumerate(read(task)):
            found += rows_of(batch)
            if number == 1:
                kafka.nodes[leader].kill()
        assert leadership.leader(name) not in (None, leader)
    finally:
        leadership.close()
        if not kafka.nodes[leader].process.running:
            kafka.nodes[leader].restart()
    assert in_order(found) == expected


@pytest.mark.skipif(not IS_HEAVY, reason="waits for the log cleaner; set QUORATE_HEAVY=1")
def test_compacted_log_is_read_as_a_consumer_reads_it(kafka: SecuredKafka, client: KafkaClient, name: str) -> None:
    compaction = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
    create(client, name, 1, segment_bytes="1048576", segment_ms="1000", **compaction)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "batch.num.messages": 10, "linger.ms": 5})
    for number in range(20_000):
        producer.produce(name, key=f"key-{number % 10}", value=bytes(200))
        producer.poll(0)
    producer.flush()
    produce(kafka.bootstrap, name, 1, first=77)  # Rolls the segment, so that the others can be cleaned.
    eventually(lambda: len(consumed_rows(kafka.bootstrap, name)) < 15_000, "the log cleaner to run", within_s=180)

    expected = consumed_rows(kafka.bootstrap, name)
    assert live(kafka, name, max_bytes_per_task="200000") == expected


def _write_transactions(kafka: SecuredKafka, topic: str) -> None:
    """Interleaved, one producer aborting and then committing, and one that never ends."""

    def produced(producer: Producer, value: str) -> None:
        producer.produce(topic, value.encode(), partition=0)
        producer.flush()

    produced(Producer({"bootstrap.servers": kafka.bootstrap}), "plain")
    kept, wavering, hanging = (_transactional(kafka, f"{topic}-{kind}") for kind in ("kept", "wavering", "hanging"))
    kept.begin_transaction()
    wavering.begin_transaction()
    for number in range(3):
        produced(kept, f"kept-{number}")
        if number == 1:
            wavering.abort_transaction()
            wavering.begin_transaction()
        produced(wavering, f"{'aborted' if number == 0 else 'again'}-{max(0, number - 1)}")
    wavering.commit_transaction()
    kept.commit_transaction()
    wavering.begin_transaction()
    produced(wavering, "aborted too")
    wavering.abort_transaction()
    produced(Producer({"bootstrap.servers": kafka.bootstrap}), "last stable")
    hanging.begin_transaction()
    produced(hanging, "open")
    produced(Producer({"bootstrap.servers": kafka.bootstrap}), "behind an open one")


def _transactional(kafka: SecuredKafka, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions()
    return producer
