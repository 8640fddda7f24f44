"""Nodes that lose their vote, their place or their disk: what they still hear, and how they come back."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.client.admin.quorum import QuorumDescription
from quorate.client.admin.topics import NewTopic
from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import NodeId, TopicName
from tests.eventually import eventually
from tests.peers.quorate_cluster import QuorateCluster

LEAVING = NodeId(4001)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QuorateCluster]:
    with QuorateCluster(tmp_path) as running:
        yield running


def client_of(cluster: QuorateCluster, *node_ids: int) -> KafkaClient:
    """A client that begins with these nodes."""
    return KafkaClient(ClientConfig(bootstrap_servers=tuple(cluster.nodes[node_id].bootstrap for node_id in node_ids)))


def quorum(cluster: QuorateCluster) -> QuorumDescription:
    with client_of(cluster, 7) as client:
        return client.quorum.describe()


def create(cluster: QuorateCluster, topic: str) -> None:
    with client_of(cluster, 7) as client:
        client.topics.create([NewTopic(name=TopicName(topic), partitions=3, replication_factor=2)])


def hears_of(cluster: QuorateCluster, node_id: int, topic: str) -> bool:
    """Whether the node itself knows the topic: nobody else is asked."""
    with client_of(cluster, node_id) as client:
        return TopicName(topic) in client.cluster.metadata().topics


def remove(cluster: QuorateCluster, node_id: NodeId) -> None:
    """As ``quorate cluster remove-node --force`` does."""
    with client_of(cluster, 7, 100) as client:
        client.quorum.remove_member(node_id)
        client.brokers.unregister(node_id, even_with_replicas=True)
        client.quorum.remove_member(node_id)


def test_a_voter_that_votes_no_more_still_hears_of_every_change(cluster: QuorateCluster) -> None:
    with client_of(cluster, 7, 100) as client:
        client.quorum.remove_member(LEAVING)

    assert quorum(cluster).voters == [7, 100]
    create(cluster, "later")
    eventually(lambda: hears_of(cluster, LEAVING, "later"), "the node without a vote to hear of the topic")
    with client_of(cluster, 7) as client:
        client.quorum.add_voter(LEAVING)
    assert quorum(cluster).voters == [7, 100, 4001]


def test_a_quorum_leader_whose_vote_is_taken_hands_over_and_goes_on_as_a_broker(cluster: QuorateCluster) -> None:
    leader = quorum(cluster).leader
    others = sorted(cluster.nodes.keys() - {leader})
    with client_of(cluster, *others) as client:
        client.quorum.remove_member(leader)

    def with_another_leader() -> QuorumDescription | None:
        try:
            found = quorum(cluster)
        except KafkaError:  # Nobody leads yet.
            return None
        return found if found.leader != leader else None

    assert eventually(with_another_leader, "another leader").voters == others
    create(cluster, "later")
    eventually(lambda: hears_of(cluster, leader, "later"), "the former leader to hear of the topic")


def test_a_removed_voter_that_starts_again_joins_again(cluster: QuorateCluster) -> None:
    cluster.kill([LEAVING])
    remove(cluster, LEAVING)
    assert LEAVING not in quorum(cluster).members
    create(cluster, "later")

    cluster.restart([LEAVING])

    assert not quorum(cluster).members[LEAVING].is_voter
    eventually(lambda: hears_of(cluster, LEAVING, "later"), "the node to hear of what it missed")


def test_a_node_that_lost_its_disk_is_kept_out_until_it_was_removed(cluster: QuorateCluster) -> None:
    create(cluster, "orders")
    cluster.kill([LEAVING])
    shutil.rmtree(cluster.nodes[LEAVING].data_dir)

    lost = cluster.nodes[LEAVING]
    lost.launch()
    refused = lost.process.wait_for_output(
        lambda out: next((line for line in out.splitlines() if "does not have the data folder" in line), None),
        "its refusal",
        30,
    )
    assert "remove it from the cluster" in refused
    create(cluster, "meanwhile")  # The others go on.
    assert quorum(cluster).members[LEAVING].is_voter

    remove(cluster, LEAVING)

    lost.wait_until_ready()
    assert not quorum(cluster).members[LEAVING].is_voter
    eventually(lambda: hears_of(cluster, LEAVING, "meanwhile"), "the node to hear of what it missed")
