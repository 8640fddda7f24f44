"""A node whose disk is full, on a real file system without room: it is told, costs nothing, and passes by itself."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.chaos.small_disk import SmallDisk
from tests.eventually import eventually
from tests.peers.quorate_cluster import IDS, QuorateCluster
from tests.peers.quorate_node import QUORATE

FULL = IDS[0]
#: Some of the room is kept for the metadata log.
CONFIGS = {"log.disk.reserve.bytes": 32 << 20, "auto.leader.rebalance.enable": True}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        small = SmallDisk(tmp_path / f"node-{FULL}" / "data")
    except OSError as error:
        pytest.skip(f"a file system cannot be mounted here: {error}")
    yield small
    small.unmount()


@pytest.fixture
def cluster(tmp_path: Path, disk: SmallDisk) -> Iterator[QuorateCluster]:
    with QuorateCluster(tmp_path, configs=CONFIGS) as running:
        yield running


class Topic:
    """One partition, with the full node as its first replica."""

    def __init__(self, cluster: QuorateCluster, name: str, replicas: int) -> None:
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self._bootstrap = cluster.bootstrap
        self._name = name
        nodes = [FULL, *IDS[1:]][:replicas]
        topic = NewTopic(name, num_partitions=1, replica_assignment=[nodes], config={"min.insync.replicas": "1"})
        self._admin.create_topics([topic])[name].result(30)
        eventually(lambda: self.leader == FULL, f"{FULL} to lead {name}")

    @property
    def leader(self) -> int:
        return int(self._admin.list_topics(self._name, timeout=20).topics[self._name].partitions[0].leader)

    def write(self, value: bytes, *, retries: int = 2**31 - 1) -> KafkaError | None:
        """With acks=all; the error that the producer was told last."""
        outcomes: list[KafkaError | None] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            outcomes.append(error)

        settings = {"bootstrap.servers": self._bootstrap, "acks": "all", "retries": retries, "log_level": 0}
        producer = Producer(settings)
        producer.produce(self._name, value, partition=0, on_delivery=delivered)
        assert producer.flush(60) == 0
        return outcomes[0]


def status(cluster: QuorateCluster) -> tuple[int, Any]:
    command = [str(QUORATE), "cluster", "status", "--bootstrap-server", cluster.bootstrap, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, json.loads(done.stdout)


def is_told_by_status(cluster: QuorateCluster) -> bool:
    return any("is full" in problem for node in status(cluster)[1]["nodes"] for problem in node["problems"])


def test_a_full_disk_costs_no_producer_anything_and_is_told_everywhere(
    cluster: QuorateCluster, disk: SmallDisk
) -> None:
    shared, alone = Topic(cluster, "shared", 3), Topic(cluster, "alone", 1)
    assert shared.write(b"before") is None
    assert alone.write(b"before") is None

    disk.fill()

    eventually(lambda: shared.leader in IDS[1:], "another node to lead what the full one led")
    assert shared.write(b"meanwhile") is None
    refused = alone.write(b"meanwhile", retries=0)
    assert refused is not None
    assert refused.code() == KafkaError.KAFKA_STORAGE_ERROR, "refused at once, not by a timeout"
    exit_status, _ = status(cluster)
    assert exit_status == 1
    assert is_told_by_status(cluster)
    doctor = [str(QUORATE), "cluster", "doctor", "--bootstrap-server", cluster.bootstrap]
    told = subprocess.run(doctor, capture_output=True, text=True, timeout=120, check=False)
    assert told.returncode == 1
    assert "is full" in told.stdout
    assert " ERROR quorate.replication.disk_room disk full " in cluster.nodes[FULL].log_text()

    disk.make_room()

    eventually(lambda: not is_told_by_status(cluster), "the node to take records again")
    assert alone.write(b"after") is None
    eventually(lambda: shared.leader == FULL, "the lead to go back")
    assert shared.write(b"after") is None
    eventually(lambda: status(cluster)[0] == 0, "the cluster to be healthy")
