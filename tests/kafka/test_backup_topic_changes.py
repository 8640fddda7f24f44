"""What happens to topics of a real Apache Kafka between runs: records deleted, topics made anew, partitions added."""

from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.backup.manifests.manifest import GapReason, TopicEntry
from quorate.backup.spark.copy.run_report import RunReport
from quorate.client.admin.topics import NewTopic
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import Offset, PartitionIndex, TopicName, TopicPartition
from tests.backup_commands import SMALL_RANGES, Backups, consume, produce
from tests.eventually import eventually
from tests.kafka.secured_kafka import SecuredKafka
from tests.spark_session import InThisProcess, run_in_process

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

Run = Callable[[], RunReport]


@pytest.fixture
def backups(kafka: SecuredKafka, tmp_path: Path) -> Backups:
    return Backups(tmp_path, kafka.bootstrap)


@pytest.fixture
def run(backups: Backups, name: str) -> Run:
    """An incremental run over the test's topic, without Spark: what it would do is no matter here."""

    def one_run() -> RunReport:
        settings = {"mode": "incremental", **SMALL_RANGES}
        config = backups.write_config(topics={"include": [name]}, backup=settings)
        report = run_in_process(backups, config, InThisProcess)
        assert report is not None
        assert (report.state, report.failures) == ("complete", []), report
        return report

    return one_run


def create(client: KafkaClient, name: str, partitions: int) -> None:
    client.topics.create([NewTopic(name=TopicName(name), partitions=partitions, replication_factor=3)])
    eventually(lambda: _is_led(client, name, partitions), f"topic {name} to be led")


def latest(backups: Backups, name: str) -> TopicEntry:
    found = backups.manifest().latest(name)
    assert found is not None
    return found


def test_empty_partitions_are_in_the_backup(
    kafka: SecuredKafka, client: KafkaClient, backups: Backups, run: Run, name: str
) -> None:
    create(client, name, 3)
    produce(kafka.bootstrap, name, 10, partition=1)

    assert run().record_count == 10

    partitions = latest(backups, name).partitions
    assert [(each.start_offset, each.end_offset) for each in partitions] == [(0, 0), (0, 10), (0, 0)]
    assert [each.segments for each in (partitions[0], partitions[2])] == [[], []]


def test_records_deleted_between_runs_are_a_gap(
    kafka: SecuredKafka, client: KafkaClient, backups: Backups, run: Run, name: str
) -> None:
    create(client, name, 1)
    produce(kafka.bootstrap, name, 10)
    run()
    produce(kafka.bootstrap, name, 20, first=10, settings={"batch.num.messages": 1})  # None across the new log start.
    client.topics.delete_records({TopicPartition(TopicName(name), PartitionIndex(0)): Offset(25)})

    (found,) = run().gaps

    assert (found.gap.start_offset, found.gap.end_offset, found.gap.reason) == (10, 25, GapReason.RETENTION)
    assert [offset for offset, _, _ in backups.records(name, 0)] == [*range(10), *range(25, 30)]


def test_recreated_topic_is_a_new_generation(
    kafka: SecuredKafka, client: KafkaClient, backups: Backups, run: Run, name: str
) -> None:
    create(client, name, 1)
    produce(kafka.bootstrap, name, 10)
    run()
    client.topics.delete([TopicName(name)])
    eventually(lambda: name not in client.cluster.metadata().topics, "the topic to be gone")
    create(client, name, 1)
    produce(kafka.bootstrap, name, 4, first=100)

    run()

    lives = [each for each in backups.manifest().topics if each.name == name]
    assert [(each.generation, each.partitions[0].end_offset) for each in lives] == [(1, 10), (2, 4)]
    assert lives[0].topic_id != lives[1].topic_id
    assert backups.records(name, 0) == consume(kafka.bootstrap, name, 0)


def test_partitions_added_between_runs_are_copied(
    kafka: SecuredKafka, client: KafkaClient, backups: Backups, run: Run, name: str
) -> None:
    create(client, name, 1)
    produce(kafka.bootstrap, name, 10)
    run()
    client.topics.add_partitions({TopicName(name): 3})
    eventually(lambda: _is_led(client, name, 3), "the new partitions to be led")
    produce(kafka.bootstrap, name, 7, first=10, partition=2)

    assert run().record_count == 7

    entry = latest(backups, name)
    assert (entry.generation, entry.partition_count) == (1, 3)
    for partition in range(3):
        assert backups.records(name, partition) == consume(kafka.bootstrap, name, partition)


def _is_led(client: KafkaClient, name: str, partitions: int) -> bool:
    wanted = [TopicPartition(TopicName(name), PartitionIndex(index)) for index in range(partitions)]
    return not any(isinstance(each, QuorateError) for each in client.offsets.try_latest(wanted).values())
