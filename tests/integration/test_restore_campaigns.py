"""Campaigns of restores, only with QUORATE_HEAVY=1: kill -9 of everything that takes part, and many topics."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from quorate.client.kafka_client import KafkaClient
from quorate.kernel.ids import PartitionIndex, TopicName, TopicPartition
from tests.backup_commands import Backups, create_topics, produce
from tests.eventually import eventually
from tests.peers.quorate_cluster import QuorateCluster
from tests.process_tree import command_of, descendants, python_workers
from tests.restore_commands import Restores, all_records, client_of, without_offsets
from tests.spark_session import InThisProcess, local_spark, run_in_process

pytest.importorskip("pyspark")

from tests.spark_cluster import StandaloneCluster, standalone_cluster

pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not os.environ.get("QUORATE_HEAVY"), reason="takes long: QUORATE_HEAVY=1 runs it"),
]

TOPIC = "orders"
PARTITIONS = 4
RECORDS = 40_000
# 10 MB take a minute and a half without the kills.
SLOW = {"rate_limit_bytes_per_second": 110_000}
MANY = 251


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateCluster]:
    with QuorateCluster(tmp_path_factory.mktemp("nodes")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with standalone_cluster(tmp_path_factory.mktemp("spark"), workers=2) as running:
        yield running


@pytest.fixture
def client(cluster: QuorateCluster) -> Iterator[KafkaClient]:
    with client_of(cluster.bootstrap) as client:
        yield client


class RestoreUnderFire:
    """One restore on a Spark cluster, started again as often as it is killed."""

    def __init__(self, restores: Restores, spark: StandaloneCluster, nodes: QuorateCluster, **settings: object) -> None:
        self._restores = restores
        self._spark = spark
        self._nodes = nodes
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None

    @property
    def process(self) -> "subprocess.Popen[str]":
        """A run that goes on; the next one where the last has ended."""
        if self._process is None or self._process.poll() is not None:
            if self._process is not None:
                print("ended by itself:", self._process.returncode, *self._process.communicate(), flush=True)
            self._process = self._restores.start("--master", self._spark.master, **self._settings)
        return self._process

    def wait_until_written(self, topic: str, records: int) -> None:
        with client_of(self._nodes.bootstrap) as client:
            eventually(
                lambda: self.process.poll() is None and written(client, topic) > records,
                f"more than {records} records to be written",
                within_s=300,
            )

    def kill_driver(self) -> bool:
        process = self.process
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        self._process = None
        return True

    def kill_executor(self) -> bool:
        return _kill_one(self._executors())

    def kill_worker(self) -> bool:
        return _kill_one([worker for each in self._executors() for worker in python_workers(each)])

    def kill_broker(self) -> bool:
        node_id = random.choice(list(self._nodes.nodes))
        self._nodes.kill([node_id])
        self._nodes.restart([node_id])
        return True

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _executors(self) -> list[int]:
        assert self.process.poll() is None
        running = [pid for worker in self._spark.workers for pid in descendants(worker.pid)]
        return [pid for pid in running if "CoarseGrainedExecutorBackend" in command_of(pid)]


def written(client: KafkaClient, topic: str) -> int:
    names = [TopicPartition(TopicName(topic), PartitionIndex(index)) for index in range(PARTITIONS)]
    if topic not in client.cluster.metadata().topics:
        return 0
    return sum(each.offset or 0 for each in client.offsets.latest(names).values())


def _kill_one(victims: list[int]) -> bool:
    if not victims:
        return False
    with suppress(ProcessLookupError):
        os.kill(random.choice(victims), signal.SIGKILL)
        return True
    return False


@pytest.mark.parametrize("preserve_offsets", [True, False])
def test_kills_at_random_points_of_everything_that_takes_part(
    cluster: QuorateCluster, spark: StandaloneCluster, client: KafkaClient, tmp_path: Path, *, preserve_offsets: bool
) -> None:
    source, target = f"{TOPIC}-{preserve_offsets}", f"back-{preserve_offsets}"
    create_topics(cluster.bootstrap, NewTopic(source, PARTITIONS))
    produce(cluster.bootstrap, source, RECORDS, settings={"batch.num.messages": 40})
    backups = Backups(tmp_path, cluster.bootstrap)
    assert run_in_process(backups, backups.write_config(topics={"include": [source]}), InThisProcess) is not None
    restores = Restores(backups, cluster.bootstrap)
    settings = {"topic_mapping": {source: target}, "preserve_offsets": preserve_offsets}
    fire = RestoreUnderFire(restores, spark, cluster, **settings, **SLOW)
    kills = 4 * [fire.kill_driver] + 5 * [fire.kill_executor] + 6 * [fire.kill_worker] + 5 * [fire.kill_broker]
    chance = random.Random(20)
    chance.shuffle(kills)
    try:
        for number, kill in enumerate(kills):
            # Each in the midst of writing, at its own place.
            fire.wait_until_written(target, RECORDS * number // (len(kills) + 2) + chance.randrange(RECORDS // 40))
            eventually(kill, "somebody to kill", within_s=120)
            print(f"{kill.__name__} after {written(client, target)} records", flush=True)
    finally:
        fire.stop()

    def is_restored() -> bool:
        finished = restores.restore("--master", spark.master, **settings)
        print(finished)
        return finished.status == 0

    eventually(is_restored, "the restore to come to its end", within_s=600)
    for partition in range(PARTITIONS):
        expected, found = (all_records(client, topic, partition) for topic in (source, target))
        assert expected
        assert without_offsets(found) == without_offsets(expected)
        assert [each.offset for each in found] == [each.offset for each in expected]


def test_many_topics(cluster: QuorateCluster, client: KafkaClient, tmp_path: Path) -> None:
    names = [f"many-{number:03}" for number in range(MANY)]
    create_topics(cluster.bootstrap, *[NewTopic(name, 1 + number % 3) for number, name in enumerate(names)])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 20})
    for number in range(40):
        for name in names:
            producer.produce(name, f"{name}:{number}", str(number))
            producer.poll(0)
    assert producer.flush(120) == 0
    backups = Backups(tmp_path, cluster.bootstrap)
    config = backups.write_config(topics={"include": ["many-*"]})
    restores = Restores(backups, cluster.bootstrap)
    with local_spark() as session:
        assert run_in_process(backups, config, lambda: session) is not None
        for keeps, suffix in ((False, "back"), (True, "kept")):
            mapping = {name: f"{name}-{suffix}" for name in names}
            began = time.monotonic()
            report = restores.run_in_process(lambda: session, topic_mapping=mapping, preserve_offsets=keeps)
            print(f"{suffix}: {report.record_count} records in {time.monotonic() - began:.1f} s")
            assert report.record_count == 40 * MANY
    for number, name in enumerate(names):
        for partition in range(1 + number % 3):
            expected = all_records(client, name, partition)
            assert all_records(client, f"{name}-back", partition) == expected
            assert all_records(client, f"{name}-kept", partition) == expected
