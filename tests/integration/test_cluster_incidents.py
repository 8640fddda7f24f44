"""What went wrong in other clusters: it must not happen in this one, and each is found when it is put back."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from quorate.client.config import ClientConfig
from quorate.client.fetch.batches import FetchedBatches, FetchRange
from quorate.client.kafka_client import KafkaClient
from quorate.client.routing import PartitionLeaderRouter, Route, Unroutable
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset, PartitionIndex, TopicName, TopicPartition
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.quorum.core.leader_requests import LeaderAnswer, LeaderRequest, Submit
from quorate.quorum.errors import NotQuorumLeader
from quorate.quorum.leader_calls import LeaderCalls, NoQuorum
from quorate.replication.partition import Partition
from quorate.replication.partitions import Partitions
from quorate.testing import ClusterInProcess
from tests.integration.replicated_topic import ReplicatedTopic
from tests.integration.wire_client import WireClient
from tests.simulation.cluster.injected_bugs import clients_sent_to_the_assigned_node

IDS = (7, 100, 4001)
SPREAD = 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess(nodes=IDS, configs={"auto.leader.rebalance.enable": False}) as running:
        yield running


def client_of(cluster: ClusterInProcess, node_id: int) -> KafkaClient:
    return KafkaClient(ClientConfig(bootstrap_servers=(cluster.address_of(node_id),), retry_timeout_ms=2_000))


def quorum_leader(cluster: ClusterInProcess) -> int:
    with client_of(cluster, IDS[0]) as client:
        leader = client.quorum.describe().leader
    assert leader is not None
    return leader


def test_incident_clients_are_told_the_wrong_leader(cluster: ClusterInProcess) -> None:
    """Two places kept the answer: who was assigned, and who was elected."""
    topic = ReplicatedTopic(cluster, "elected", IDS)
    cluster.stop(7)
    topic.down.add(7)
    try:
        check_leaders(topic)
        with clients_sent_to_the_assigned_node(), pytest.raises(AssertionError):
            check_leaders(topic)
    finally:
        topic.restart(7)


def check_leaders(topic: ReplicatedTopic) -> None:
    for node_id in (100, 4001):
        named = topic.describe(node_id).leader_id
        assert named in (100, 4001), f"node {node_id} names {named}, which is down"
        assert topic.produce(named, b"x").responses[0].partition_responses[0].error_code == ErrorCode.NONE


def test_incident_acks_all_hangs_where_the_partition_leader_is_not_the_quorum_leader(cluster: ClusterInProcess) -> None:
    """A node asked whether it leads the quorum, where it should have asked whether it leads the partition."""
    controller = quorum_leader(cluster)
    others = [node_id for node_id in IDS if node_id != controller]
    topic = ReplicatedTopic(cluster, "led-by-another", others)
    topic.write(b"x")
    with writes_taken_by_the_quorum_leader_only(controller), pytest.raises(AssertionError):
        topic.write(b"y")


@contextmanager
def writes_taken_by_the_quorum_leader_only(controller: int) -> Iterator[None]:
    def led(self: Partitions, topic: TopicName, index: PartitionIndex) -> Partition:
        if self._view.node_id != controller:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.replica(topic, index)

    with patch.object(Partitions, "led", led):
        yield


def test_incident_topics_cannot_be_created_through_two_nodes_of_three(cluster: ClusterInProcess) -> None:
    """A node that does not lead the quorum tried to propose by itself."""
    check_creation(cluster, "by")
    with followers_propose_by_themselves(), pytest.raises(AssertionError):
        check_creation(cluster, "not-by")


def check_creation(cluster: ClusterInProcess, prefix: str) -> None:
    for node_id in IDS:
        topic = CreatableTopic(name=f"{prefix}-{node_id}", num_partitions=1, replication_factor=3)
        with WireClient(cluster.address_of(node_id)) as client:
            request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
            created = client.call(request, 7, CreateTopicsResponse)
        assert created.topics[0].error_code == ErrorCode.NONE, f"node {node_id}: {created}"


@contextmanager
def followers_propose_by_themselves() -> Iterator[None]:
    ask = LeaderCalls.ask

    async def here(self: LeaderCalls, request: LeaderRequest, timeout_ms: float) -> tuple[LeaderAnswer, bool]:
        if not isinstance(request, Submit):
            return await ask(self, request, timeout_ms)
        try:
            return await self._answer(request), False
        except NotQuorumLeader:
            raise NoQuorum(may_be_done=False) from None

    with patch.object(LeaderCalls, "ask", here):
        yield


def test_incident_a_backup_lacks_most_partitions_since_it_reads_from_one_broker(cluster: ClusterInProcess) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic("spread", num_partitions=SPREAD, replication_factor=1)])["spread"].result(20)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for index in range(SPREAD):
        producer.produce("spread", b"x", partition=index)
    assert producer.flush(20) == 0
    with client_of(cluster, IDS[0]) as client:
        assert len(copied_partitions(client)) == SPREAD
    with everything_read_from_one_broker(), client_of(cluster, IDS[0]) as client:
        assert len(copied_partitions(client)) < SPREAD


def copied_partitions(client: KafkaClient) -> set[int]:
    """As a task of the backup reads them."""
    ranges = [
        FetchRange(
            topic=TopicName("spread"), partition=PartitionIndex(index), start_offset=Offset(0), end_offset=Offset(1)
        )
        for index in range(SPREAD)
    ]
    return {each.range.partition for each in client.fetch_ranges(ranges) if isinstance(each, FetchedBatches)}


@contextmanager
def everything_read_from_one_broker() -> Iterator[None]:
    route = PartitionLeaderRouter.route

    def first(self: PartitionLeaderRouter, partition: TopicPartition) -> Route | Unroutable:
        found = route(self, partition)
        broker = next(iter(self.brokers.values()))
        return (
            found
            if isinstance(found, Unroutable)
            else msgspec.structs.replace(found, node_id=broker.node_id, address=broker.address)
        )

    with patch.object(PartitionLeaderRouter, "route", first):
        yield
