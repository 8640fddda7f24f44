"""Restores that are killed and run again, or run twice at once: every record is there once, in order."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from quorate.client.kafka_client import KafkaClient
from quorate.kernel.ids import PartitionIndex, TopicName, TopicPartition
from tests.backup_commands import SMALL_RANGES, Backups, create_topics, interrupt, produce
from tests.eventually import eventually
from tests.peers.quorate_node import QuorateNode
from tests.restore_commands import Restores, all_records, client_of, without_offsets

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(3600 if os.environ.get("QUORATE_HEAVY") else 600)

TOPIC = "orders"
PARTITIONS = 3
RECORDS = 16_000
# Slow enough that a run can be stopped in the middle: 4 MB take 20 s.
SLOW = {"rate_limit_bytes_per_second": 200_000}
KILLS = 20 if os.environ.get("QUORATE_HEAVY") else 2


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        create_topics(node.bootstrap, NewTopic(TOPIC, PARTITIONS))
        produce(node.bootstrap, TOPIC, RECORDS, settings={"batch.num.messages": 40})
        yield node


@pytest.fixture(scope="module")
def backups(node: QuorateNode, tmp_path_factory: pytest.TempPathFactory) -> Backups:
    backups = Backups(tmp_path_factory.mktemp("backup"), node.bootstrap)
    done = backups.backup(topics={"include": [TOPIC]}, backup=SMALL_RANGES)
    assert done.status == 0, done
    return backups


@pytest.fixture
def restores(node: QuorateNode, backups: Backups) -> Restores:
    return Restores(backups, node.bootstrap)


@pytest.fixture(scope="module")
def client(node: QuorateNode) -> Iterator[KafkaClient]:
    with client_of(node.bootstrap) as client:
        yield client


def assert_equal(client: KafkaClient, target: str) -> None:
    for partition in range(PARTITIONS):
        expected = without_offsets(all_records(client, TOPIC, partition))
        assert expected
        assert without_offsets(all_records(client, target, partition)) == expected


def written(client: KafkaClient, target: str) -> int:
    names = [TopicPartition(TopicName(target), PartitionIndex(index)) for index in range(PARTITIONS)]
    if target not in client.cluster.metadata().topics:
        return 0
    return sum(each.offset or 0 for each in client.offsets.latest(names).values())


def kill_when_written(process: "subprocess.Popen[str]", client: KafkaClient, target: str, records: int) -> None:
    """Only the driver: its workers find out later, and may go on writing beside the next run."""
    eventually(lambda: written(client, target) >= records, f"{records} records to be written", within_s=120)
    assert process.poll() is None, process.communicate()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def test_driver_killed_at_random_points_then_run_again_restores_each_record_once(
    restores: Restores, client: KafkaClient
) -> None:
    mapping = {"topic_mapping": {TOPIC: "killed"}}
    chance = random.Random(11)
    early = restores.start(**mapping, **SLOW)
    time.sleep(chance.uniform(2, 10))
    os.kill(early.pid, signal.SIGKILL)
    early.wait()
    for kill in range(1, KILLS + 1):
        process = restores.start(**mapping, **SLOW)
        records = RECORDS * kill // (KILLS + 2) + chance.randrange(500)
        kill_when_written(process, client, "killed", records)
        assert written(client, "killed") < RECORDS

    done = restores.restore(**mapping)

    assert done.status == 0, done
    assert "(resumed)" in done.output
    assert_equal(client, "killed")


def test_stopped_restore_says_how_to_go_on_and_the_next_run_writes_only_the_rest(
    restores: Restores, client: KafkaClient
) -> None:
    mapping = {"topic_mapping": {TOPIC: "stopped"}}
    process = restores.start(**mapping, **SLOW)
    eventually(lambda: written(client, "stopped") >= RECORDS // 4, "a quarter to be written", within_s=120)
    stopped = interrupt(process)
    assert stopped.status == 130, stopped
    assert "run the same restore again" in stopped.errors

    done = restores.restore("--format", "json", **mapping)

    assert done.status == 0, done
    assert_equal(client, "stopped")
    assert done.json["record_count"] == RECORDS
    assert done.json["written_records"] <= RECORDS - RECORDS // 4


def test_two_commands_that_run_the_same_restore_at_once_write_each_record_once(
    restores: Restores, client: KafkaClient
) -> None:
    mapping = {"topic_mapping": {TOPIC: "twice"}}
    first = restores.start(**mapping, **SLOW)
    time.sleep(4)
    second = restores.start(**mapping, **SLOW)
    outcomes = [first.communicate(timeout=200), second.communicate(timeout=200)]

    assert 0 in (first.returncode, second.returncode), outcomes  # The one that began to write last goes on.
    assert_equal(client, "twice")
