"""Replication while nodes do not answer, with real processes that are frozen; and reading from a replica nearby."""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode
from tests.chaos.cluster import NODE_IDS, ProcessCluster, rack_of
from tests.eventually import eventually
from tests.integration.replicated_topic import ReplicatedTopic
from tests.proofs import CONFLUENT

BY_HAND = {
    "auto.leader.rebalance.enable": False,
    "auto.new.node.rebalance.enable": False,
    "replica.lag.time.max.ms": 1_000,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("cluster"), configs=BY_HAND) as running:
        yield running


def quorum_leader(cluster: ProcessCluster) -> int:
    with KafkaClient(ClientConfig(bootstrap_servers=tuple(cluster.bootstrap.split(",")))) as client:
        leader = eventually(lambda: client.quorum.describe().leader, "the quorum to have a leader")
    return int(leader)


def test_a_write_that_waits_while_too_many_replicas_fall_out_is_told_so(cluster: ProcessCluster) -> None:
    """It is in the log by then. NOT_ENOUGH_REPLICAS would say that it is not."""
    leader = quorum_leader(cluster)
    follower = next(node_id for node_id in NODE_IDS if node_id != leader)
    topic = ReplicatedTopic(cluster, "shrinking", (leader, follower), {"min.insync.replicas": "2"})
    assert topic.write(b"before") == 0

    cluster.freeze(follower)
    answer = topic.produce(leader, b"waits").responses[0].partition_responses[0]
    cluster.thaw(follower)

    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    topic.wait_for_isr(leader, follower)
    assert topic.read() == [b"before", b"waits"]


def test_nothing_is_acknowledged_while_nobody_answers_what_a_leader_proposes(cluster: ProcessCluster) -> None:
    """The follower must leave the in-sync set first, and there is no quorum to decide it. When there is, it does."""
    controller = quorum_leader(cluster)
    leader, follower = (node_id for node_id in NODE_IDS if node_id != controller)
    topic = ReplicatedTopic(cluster, "undecided", (leader, follower), {"min.insync.replicas": "1"})
    assert topic.write(b"before") == 0

    cluster.freeze(controller, follower)
    waited = topic.produce(leader, b"alone", timeout_ms=4_000).responses[0].partition_responses[0]
    assert waited.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert set(topic.describe(leader).isr_nodes) == {leader, follower}
    data = topic.fetch(leader).responses[0].partitions[0]
    assert data.high_watermark == 1

    cluster.thaw(controller)
    assert topic.write(b"decided") == 2
    assert list(topic.describe(leader).isr_nodes) == [leader]
    cluster.thaw(follower)
    topic.wait_for_isr(leader, follower)
    assert topic.read() == [b"before", b"alone", b"decided"]


@pytest.mark.proves(*CONFLUENT, "reads from the replica in its rack")
def test_a_stock_client_reads_from_the_replica_in_its_rack(cluster: ProcessCluster) -> None:
    leader, near, _ = NODE_IDS
    topic = ReplicatedTopic(cluster, "near", NODE_IDS)
    for number in range(20):
        topic.write(b"%d" % number)
    statistics: list[str] = []
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.rack": rack_of(near),
            "group.id": "readers",
            "statistics.interval.ms": 100,
            "stats_cb": statistics.append,
        }
    )
    consumer.assign([TopicPartition("near", 0, 0)])
    found: list[bytes | str | None] = []

    def has_read_nearby() -> bool:
        found.extend(message.value() for message in consumer.consume(100, 0.2) if message.error() is None)
        return bool(statistics) and _fetches_from(statistics[-1], "near") == near

    eventually(has_read_nearby, "the client to fetch from the replica in its rack")
    before = _received_bytes(statistics[-1], near)
    topic.write(b"x" * 50_000)
    eventually(lambda: has_read_nearby() and found[-1:] == [b"x" * 50_000], "the last record")
    eventually(
        lambda: has_read_nearby() and _received_bytes(statistics[-1], near) > before + 50_000,
        "the statistics to show where it came from",
    )
    assert _received_bytes(statistics[-1], leader) < 50_000
    assert found[:20] == [b"%d" % number for number in range(20)]
    consumer.close()


def _fetches_from(statistics: str, topic: str) -> int:
    return int(json.loads(statistics)["topics"][topic]["partitions"]["0"]["broker"])


def _received_bytes(statistics: str, node_id: int) -> int:
    brokers = json.loads(statistics)["brokers"].values()
    return sum(int(broker["rxbytes"]) for broker in brokers if broker["nodeid"] == node_id)
