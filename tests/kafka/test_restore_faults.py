"""Restores into Apache Kafka while brokers, drivers and workers die, and while the leader forgets its producers."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from quorate.backup.spark.session.job import SparkDriver
from quorate.client.admin.topics import NewTopic
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.ids import PartitionIndex, TopicName, TopicPartition
from tests.backup_commands import Backups
from tests.eventually import eventually
from tests.kafka.secured_kafka import SecuredKafka
from tests.kafka.test_restore import back_up
from tests.peers.apache_kafka import ApacheKafka, ApacheKafkaNode
from tests.process_tree import python_workers
from tests.restore_commands import Restores, all_records, client_of, without_offsets
from tests.spark_session import SparkWithEvent, local_spark

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]

PARTITIONS = 2
RECORDS = 12_000
LONG_AGO_MS = 1_500_000_000_000
SLOW = {"rate_limit_bytes_per_second": 400_000}
# Producers are forgotten as soon as their newest record is a second old, which restored ones always are.
FORGETFUL = {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "100"}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkDriver]:
    with local_spark() as driver:
        yield driver


@pytest.fixture(scope="module")
def forgetful(kafka_classpath: str) -> Iterator[ApacheKafka]:
    with ApacheKafka.start(overrides=FORGETFUL) as running:
        yield running


def fill(bootstrap: str, topic: str, replication_factor: int) -> None:
    with client_of(bootstrap) as client:
        new = NewTopic(
            name=TopicName(topic),
            partitions=PARTITIONS,
            replication_factor=replication_factor,
            configs={"retention.ms": "-1"},
        )
        client.topics.create([new])
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 40, "linger.ms": 20})
    for number in range(RECORDS):
        value = f"{number}:".encode().ljust(400, b"v")
        producer.produce(topic, value, str(number), timestamp=LONG_AGO_MS + number)
        producer.poll(0)
    assert producer.flush(60) == 0


def written(client: KafkaClient, topic: str) -> int:
    if topic not in client.cluster.metadata().topics:
        return 0
    names = [TopicPartition(TopicName(topic), PartitionIndex(index)) for index in range(PARTITIONS)]
    return sum(each.offset or 0 for each in client.offsets.latest(names).values())


def wait_until_written(client: KafkaClient, topic: str, records: int) -> None:
    eventually(lambda: written(client, topic) > records, f"{records} records to be written", within_s=120)


def assert_equal(client: KafkaClient, source: str, target: str) -> None:
    for partition in range(PARTITIONS):
        expected = without_offsets(all_records(client, source, partition))
        assert expected
        assert without_offsets(all_records(client, target, partition)) == expected


def test_each_record_is_restored_once_while_brokers_are_killed(
    kafka: SecuredKafka, client: KafkaClient, spark: SparkDriver, tmp_path: Path, name: str
) -> None:
    fill(kafka.bootstrap, name, 3)
    backups = Backups(tmp_path, kafka.bootstrap)
    back_up(backups, name)
    target = f"{name}-back"
    victims = list(kafka.nodes.values())[:2]
    killed: list[ApacheKafkaNode] = []

    def disturb() -> None:
        if len(killed) < len(victims) and written(client, target) > RECORDS * (len(killed) + 1) // 4:
            for node in killed:
                node.restart()
            victims[len(killed)].kill()
            killed.append(victims[len(killed)])

    try:
        report = Restores(backups, kafka.bootstrap).run_in_process(
            lambda: SparkWithEvent(spark, during=disturb), topic_mapping={name: target}, **SLOW
        )
    finally:
        for node in kafka.nodes.values():
            if not node.process.running:
                node.restart()

    assert report.record_count == RECORDS
    assert len(killed) == 2
    assert_equal(client, name, target)


def test_each_record_is_restored_once_by_a_leader_that_forgets_its_producers(
    forgetful: ApacheKafka, tmp_path: Path
) -> None:
    fill(forgetful.bootstrap, "orders", 1)
    backups = Backups(tmp_path, forgetful.bootstrap)
    back_up(backups, "orders")
    restores = Restores(backups, forgetful.bootstrap)
    settings = {"topic_mapping": {"orders": "back"}}
    with client_of(forgetful.bootstrap) as client:
        process = restores.start(**settings, **SLOW)
        wait_until_written(client, "back", RECORDS // 4)
        workers = python_workers(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert workers
        done = restores.restore(**settings)

        assert done.status == 0, done
        assert_equal(client, "orders", "back")


def test_each_record_is_restored_once_while_workers_are_killed(forgetful: ApacheKafka, tmp_path: Path) -> None:
    fill(forgetful.bootstrap, "payments", 1)
    backups = Backups(tmp_path, forgetful.bootstrap)
    back_up(backups, "payments")
    with client_of(forgetful.bootstrap) as client:
        process = Restores(backups, forgetful.bootstrap).start(topic_mapping={"payments": "back-again"}, **SLOW)
        wait_until_written(client, "back-again", RECORDS // 4)
        workers = python_workers(process.pid)
        assert workers
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        output, errors = process.communicate(timeout=200)

        assert process.returncode == 0, (output, errors)
        assert_equal(client, "payments", "back-again")
