"""Nodes with several listeners: clients are told the addresses of the one that they came by, and no others."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from quorate.broker.peer_credentials import SECRET_FILE_NAME, make_secret_file
from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.integration.wire_client import WireClient
from tests.peers.child_process import free_port
from tests.peers.quorate_node import QuorateNode

MAP = "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"


class TwoNodes:
    """Node 7 has two listeners, node 100 only one of them."""

    def __init__(self, folder: Path) -> None:
        self.ports = {name: free_port() for name in ("inside-7", "outside-7", "inside-100")}
        self.peers = {name: f"127.0.0.1:{free_port()}" for name in ("7", "100")}
        self.secret_file = folder / SECRET_FILE_NAME
        make_secret_file(self.secret_file)
        both = f"INSIDE://127.0.0.1:{self.ports['inside-7']},OUTSIDE://127.0.0.1:{self.ports['outside-7']}"
        self.nodes = [
            self._node(folder, 7, both, f"OUTSIDE://localhost:{self.ports['outside-7']}"),
            self._node(folder, 100, f"INSIDE://127.0.0.1:{self.ports['inside-100']}", ""),
        ]

    def _node(self, folder: Path, node_id: int, listeners: str, advertised: str) -> QuorateNode:
        return QuorateNode(
            folder / str(node_id),
            node_id=node_id,
            settings={
                "cluster_id": "tests",
                "cluster_secret_file": str(self.secret_file),
                "peer_listen": self.peers[str(node_id)],
                "voters": self.peers,
            },
            configs={
                "listeners": listeners,
                "advertised.listeners": advertised,
                "listener.security.protocol.map": MAP,
                "auto.leader.rebalance.enable": False,
                "offsets.topic.num.partitions": 8,
                "offsets.topic.replication.factor": 1,
            },
        )

    def inside(self, node_id: int) -> str:
        return f"127.0.0.1:{self.ports[f'inside-{node_id}']}"

    @property
    def outside(self) -> str:
        return f"localhost:{self.ports['outside-7']}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    cluster = TwoNodes(tmp_path_factory.mktemp("listeners"))
    for node in cluster.nodes:
        node.launch()
    try:
        for node in cluster.nodes:
            node.wait_until_ready()
        yield cluster
    finally:
        for node in cluster.nodes:
            node.kill()


def brokers(bootstrap: str) -> set[tuple[int, str, int]]:
    with WireClient(bootstrap) as client:
        answer = client.call(MetadataRequest(topics=()), 12, MetadataResponse)
        described = client.call(DescribeClusterRequest(), 1, DescribeClusterResponse)
    listed = {(broker.node_id, broker.host, broker.port) for broker in answer.brokers}
    assert {(broker.broker_id, broker.host, broker.port) for broker in described.brokers} == listed
    return listed


def test_each_client_is_told_the_addresses_of_the_listener_that_it_came_by(cluster: TwoNodes) -> None:
    assert brokers(cluster.inside(7)) == brokers(cluster.inside(100))
    assert brokers(cluster.inside(7)) == {
        (7, "127.0.0.1", cluster.ports["inside-7"]),
        (100, "127.0.0.1", cluster.ports["inside-100"]),
    }
    assert brokers(cluster.outside) == {(7, "localhost", cluster.ports["outside-7"])}


def test_partitions_and_groups_of_a_node_without_that_listener_cannot_be_reached(cluster: TwoNodes) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.inside(7)})
    with WireClient(cluster.outside) as outside, WireClient(cluster.inside(100)) as inside:
        names = [f"led-{number}" for number in range(8)]
        topics = [MetadataRequestTopic(name=name) for name in names]
        inside.call(MetadataRequest(topics=topics), 9, MetadataResponse)
        assert admin.list_topics(timeout=30).topics.keys() >= set(names)

        def leaders(client: WireClient, version: int) -> dict[str | None, tuple[int, int]]:
            answer = client.call(MetadataRequest(topics=topics), version, MetadataResponse)
            return {
                topic.name: (topic.partitions[0].leader_id, topic.partitions[0].error_code) for topic in answer.topics
            }

        seen_inside = leaders(inside, 9)
        assert {leader for leader, _ in seen_inside.values()} == {7, 100}
        for version, error in ((9, ErrorCode.LISTENER_NOT_FOUND), (5, ErrorCode.LEADER_NOT_AVAILABLE)):
            assert leaders(outside, version) == {
                name: (7, 0) if leader == 7 else (-1, error) for name, (leader, _) in seen_inside.items()
            }
        request = FindCoordinatorRequest(coordinator_keys=[f"group-{number}" for number in range(8)])
        found_inside = inside.call(request, 4, FindCoordinatorResponse).coordinators
        found_outside = outside.call(request, 4, FindCoordinatorResponse).coordinators
        assert {each.node_id for each in found_inside} == {7, 100}
        for here, there in zip(found_inside, found_outside, strict=True):
            if here.node_id == 7:
                assert (there.host, there.port) == ("localhost", cluster.ports["outside-7"])
            else:
                assert there.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_records_written_by_one_listener_are_read_by_another(cluster: TwoNodes) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.inside(7)})
    topic = "shared"
    created = admin.create_topics([NewTopic(topic, num_partitions=1, replica_assignment=[[7]])])
    created[topic].result(30)
    producer = Producer({"bootstrap.servers": cluster.outside})
    producer.produce(topic, b"from outside")
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": cluster.inside(100), "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"from outside"
    finally:
        consumer.close()
