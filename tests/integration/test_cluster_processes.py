"""A cluster of three processes: any node takes any change of metadata, and nothing is lost whoever is killed."""

from collections.abc import Iterator, Mapping

import pytest

from quorate.client.admin.topics import NewTopic
from quorate.client.cluster_metadata import TopicMetadata
from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import TopicName
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.eventually import eventually
from tests.integration.wire_client import WireClient
from tests.peers.quorate_cluster import IDS, QuorateCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateCluster]:
    with QuorateCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def client_of(cluster: QuorateCluster, *node_ids: int) -> KafkaClient:
    servers = tuple(cluster.nodes[node_id].bootstrap for node_id in node_ids or IDS)
    return KafkaClient(ClientConfig(bootstrap_servers=servers))


def create(client: KafkaClient, name: str, partitions: int = 3) -> None:
    client.topics.create([NewTopic(name=TopicName(name), partitions=partitions)])


def seen_by(cluster: QuorateCluster, node_id: int) -> Mapping[TopicName, TopicMetadata]:
    """What this very node says: no other one is known before the first answer."""
    with client_of(cluster, node_id) as client:
        return client.cluster.metadata().topics


def agree(cluster: QuorateCluster) -> Mapping[TopicName, TopicMetadata] | None:
    views = [seen_by(cluster, node_id) for node_id in IDS]
    return views[0] if all(view == views[0] for view in views) else None


def all_in_sync(cluster: QuorateCluster) -> bool:
    with client_of(cluster) as client:
        topics = client.cluster.metadata().topics
    return all(
        partition.leader is not None and set(partition.isr) == set(IDS)
        for topic in topics.values()
        for partition in topic.partitions.values()
    )


def topics_of(node: WireClient) -> set[str | None]:
    answer = node.call(MetadataRequest(topics=None), 9, MetadataResponse)
    return {topic.name for topic in answer.topics}


def test_topics_are_created_and_deleted_through_every_node(cluster: QuorateCluster) -> None:
    """Guards against creation that fails on two nodes of three because a follower tried to propose."""
    for node_id in IDS:
        name = f"by-{node_id}"
        with WireClient(cluster.nodes[node_id].bootstrap) as node:
            topic = CreatableTopic(name=name, num_partitions=3, replication_factor=3)
            created = node.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7, CreateTopicsResponse)
            assert created.topics[0].error_code == ErrorCode.NONE
            assert name in topics_of(node)  # It answers when it knows itself.
            removal = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)
            assert node.call(removal, 6, DeleteTopicsResponse).responses[0].error_code == ErrorCode.NONE
            assert name not in topics_of(node)


def test_all_nodes_name_the_same_leaders(cluster: QuorateCluster) -> None:
    with client_of(cluster) as client:
        create(client, "spread", partitions=6)

    topics = eventually(lambda: agree(cluster), "the nodes to agree")

    assert {partition.leader for partition in topics[TopicName("spread")].partitions.values()} == set(IDS)


@pytest.mark.parametrize("victim", IDS)
def test_cluster_goes_on_without_any_one_node(cluster: QuorateCluster, victim: int) -> None:
    survivors = [node_id for node_id in IDS if node_id != victim]
    cluster.kill([victim])

    with client_of(cluster, *survivors) as client:
        create(client, f"without-{victim}")
        led_by = {p.leader for t in client.cluster.metadata().topics.values() for p in t.partitions.values()}
        assert victim not in led_by

    cluster.restart([victim])
    eventually(lambda: all_in_sync(cluster), "the node to be in sync again")


def test_quorum_leader_that_is_told_to_stop_hands_over_first(cluster: QuorateCluster) -> None:
    with client_of(cluster) as client:
        leader = client.quorum.describe().leader
    assert leader is not None
    stopping = cluster.nodes[leader]

    assert stopping.stop() == 0

    assert f"quorum handed over node={leader}" in stopping.process.output()
    with client_of(cluster, *[node_id for node_id in IDS if node_id != leader]) as client:
        assert client.quorum.describe().leader not in (None, leader)
    cluster.restart([leader])


def test_everything_is_there_after_all_nodes_were_killed_at_once(cluster: QuorateCluster) -> None:
    with client_of(cluster) as client:
        create(client, "survivor", partitions=5)
    before = {name: topic.topic_id for name, topic in seen_by(cluster, IDS[0]).items()}

    cluster.kill(IDS)
    cluster.restart(IDS)

    eventually(lambda: all_in_sync(cluster), "all replicas to be in sync again")
    after = eventually(lambda: agree(cluster), "the nodes to agree")
    assert {name: topic.topic_id for name, topic in after.items()} == before
    with client_of(cluster) as client:
        create(client, "after-the-restart")


def test_node_that_waits_for_its_quorum_stops_when_told(cluster: QuorateCluster) -> None:
    cluster.kill(IDS)
    lonely = cluster.nodes[IDS[0]]
    lonely.launch()
    eventually(lambda: "waiting for the quorum" in lonely.process.output(), "the node to look for the others")

    assert lonely.stop() == 0

    cluster.restart(IDS)
