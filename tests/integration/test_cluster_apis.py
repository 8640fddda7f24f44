"""The APIs for operators as they are on the wire: every version, and what is refused."""

from collections.abc import Iterator

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages import add_raft_voter as add
from quorate.protocol.messages import alter_partition_reassignments as alter
from quorate.protocol.messages import create_topics as create
from quorate.protocol.messages import describe_cluster as cluster_api
from quorate.protocol.messages import describe_quorum as quorum_api
from quorate.protocol.messages import elect_leaders as elect
from quorate.protocol.messages import list_partition_reassignments as ongoing
from quorate.protocol.messages import remove_raft_voter as remove
from quorate.protocol.messages import unregister_broker as unregister
from quorate.testing import ClusterInProcess
from tests.eventually import eventually
from tests.integration.wire_client import WireClient

IDS = (7, 100, 4001)
CLUSTER_ID = "in-process"
BY_HAND = {"auto.leader.rebalance.enable": False}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess(nodes=IDS, configs=BY_HAND) as running:
        yield running


@pytest.fixture(params=IDS, ids=lambda node_id: f"node-{node_id}")
def client(request: pytest.FixtureRequest, cluster: ClusterInProcess) -> Iterator[WireClient]:
    """A connection to each node in turn: two of them do not lead the quorum."""
    with WireClient(cluster.address_of(request.param)) as connected:
        yield connected


def create_topic(client: WireClient, name: str, *replicas: int) -> None:
    assignment = create.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    topic = create.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    answer = client.call(create.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7, create.CreateTopicsResponse)
    assert answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_quorum_is_described_by_every_node(client: WireClient, version: int) -> None:
    asked = [quorum_api.RequestPartitionData(partition_index=0)]
    request = quorum_api.DescribeQuorumRequest(
        topics=[quorum_api.RequestTopicData(topic_name="__cluster_metadata", partitions=asked)]
    )

    answer = client.call(request, version, quorum_api.DescribeQuorumResponse)

    [partition] = answer.topics[0].partitions
    assert partition.error_code == ErrorCode.NONE
    assert partition.leader_id in IDS
    assert partition.leader_epoch >= 1
    assert sorted(voter.replica_id for voter in partition.current_voters) == list(IDS)
    assert not partition.observers
    assert all(voter.log_end_offset > 0 for voter in partition.current_voters)
    if version == 2:
        assert {node.node_id: len(node.listeners) for node in answer.nodes} == dict.fromkeys(IDS, 1)


def test_only_the_metadata_has_a_quorum(client: WireClient) -> None:
    asked = [quorum_api.RequestPartitionData(partition_index=0)]
    request = quorum_api.DescribeQuorumRequest(
        topics=[quorum_api.RequestTopicData(topic_name="orders", partitions=asked)]
    )

    answer = client.call(request, 2, quorum_api.DescribeQuorumResponse)

    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_fenced_brokers_are_named_when_asked_for() -> None:
    with ClusterInProcess(nodes=IDS) as cluster, WireClient(cluster.address_of(7)) as client:
        cluster.kill(4001)

        def states(*, with_fenced: bool) -> dict[int, bool]:
            request = cluster_api.DescribeClusterRequest(include_fenced_brokers=with_fenced)
            answer = client.call(request, 2, cluster_api.DescribeClusterResponse)
            return {broker.broker_id: broker.is_fenced for broker in answer.brokers}

        eventually(lambda: states(with_fenced=True) == {7: False, 100: False, 4001: True}, "the node to be fenced")
        assert 4001 not in states(with_fenced=False)


@pytest.mark.parametrize(
    ("voter_id", "cluster_id", "expected"),
    [
        (7, CLUSTER_ID, ErrorCode.DUPLICATE_VOTER),
        (9, CLUSTER_ID, ErrorCode.VOTER_NOT_FOUND),
        (9, None, ErrorCode.VOTER_NOT_FOUND),
        (7, "another", ErrorCode.INCONSISTENT_CLUSTER_ID),
    ],
)
def test_voters_that_cannot_be_added_are_refused(
    client: WireClient, voter_id: int, cluster_id: str | None, expected: ErrorCode
) -> None:
    request = add.AddRaftVoterRequest(cluster_id=cluster_id, timeout_ms=5_000, voter_id=voter_id)

    for version in (0, 1):
        assert client.call(request, version, add.AddRaftVoterResponse).error_code == expected


@pytest.mark.parametrize(
    ("voter_id", "cluster_id", "expected"),
    [(9, CLUSTER_ID, ErrorCode.VOTER_NOT_FOUND), (7, "another", ErrorCode.INCONSISTENT_CLUSTER_ID)],
)
def test_members_that_cannot_be_removed_are_refused(
    client: WireClient, voter_id: int, cluster_id: str, expected: ErrorCode
) -> None:
    request = remove.RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter_id)

    assert client.call(request, 0, remove.RemoveRaftVoterResponse).error_code == expected


def test_last_voter_stays() -> None:
    with ClusterInProcess(nodes=1) as alone, WireClient(alone.bootstrap_servers) as client:
        answer = client.call(
            remove.RemoveRaftVoterRequest(cluster_id=None, voter_id=1), 0, remove.RemoveRaftVoterResponse
        )

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "last voter" in (answer.error_message or "")


def test_broker_that_is_not_registered_cannot_be_unregistered(client: WireClient) -> None:
    answer = client.call(unregister.UnregisterBrokerRequest(broker_id=9), 0, unregister.UnregisterBrokerResponse)

    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize("version", [0, 1, 2])
def test_elections_are_answered_partition_by_partition(client: WireClient, version: int) -> None:
    create_topic(client, "elected", *IDS)
    wanted = [
        elect.TopicPartitions(topic="elected", partitions=[0, 5]),
        elect.TopicPartitions(topic="nosuch", partitions=[0]),
    ]

    answer = client.call(elect.ElectLeadersRequest(topic_partitions=wanted), version, elect.ElectLeadersResponse)

    assert answer.error_code == ErrorCode.NONE
    assert {
        (topic.topic, result.partition_id): result.error_code
        for topic in answer.replica_election_results
        for result in topic.partition_result
    } == {
        ("elected", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("elected", 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nosuch", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_election_of_all_partitions_tells_of_those_that_needed_one(client: WireClient) -> None:
    answer = client.call(elect.ElectLeadersRequest(topic_partitions=None), 2, elect.ElectLeadersResponse)

    assert answer.error_code == ErrorCode.NONE
    assert not answer.replica_election_results


def test_unknown_kind_of_election_is_refused(client: WireClient) -> None:
    request = elect.ElectLeadersRequest(election_type=9, topic_partitions=None)

    assert client.call(request, 2, elect.ElectLeadersResponse).error_code == ErrorCode.INVALID_REQUEST


def test_reassignments_are_answered_partition_by_partition(client: WireClient) -> None:
    create_topic(client, "moving", 7, 100)
    partitions = [
        alter.ReassignablePartition(partition_index=0, replicas=[7, 9]),
        alter.ReassignablePartition(partition_index=1, replicas=[7]),
        alter.ReassignablePartition(partition_index=0, replicas=None),
    ]
    request = alter.AlterPartitionReassignmentsRequest(
        topics=[alter.ReassignableTopic(name="moving", partitions=partitions)]
    )

    answer = client.call(request, 1, alter.AlterPartitionReassignmentsResponse)

    [topic] = answer.responses
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
        (0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ]


def test_replication_factor_is_kept_where_that_is_asked_for(client: WireClient) -> None:
    create_topic(client, "moving", 7, 100)
    topic = alter.ReassignableTopic(
        name="moving", partitions=[alter.ReassignablePartition(partition_index=0, replicas=[7])]
    )
    request = alter.AlterPartitionReassignmentsRequest(allow_replication_factor_change=False, topics=[topic])

    answer = client.call(request, 1, alter.AlterPartitionReassignmentsResponse)

    assert answer.responses[0].partitions[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert answer.allow_replication_factor_change is False


def test_reassignment_to_a_node_that_is_down_is_listed_and_cancelled() -> None:
    with ClusterInProcess(nodes=IDS) as cluster, WireClient(cluster.address_of(7)) as client:
        create_topic(client, "moving", 7, 100)
        cluster.kill(4001)
        assert move(client, [4001, 7]) == ErrorCode.NONE

        listed = client.call(
            ongoing.ListPartitionReassignmentsRequest(topics=None), 0, ongoing.ListPartitionReassignmentsResponse
        )
        [partition] = listed.topics[0].partitions
        assert (set(partition.adding_replicas), set(partition.removing_replicas)) == ({4001}, {100})
        other = ongoing.ListPartitionReassignmentsTopics(name="moving", partition_indexes=[1])
        named = client.call(
            ongoing.ListPartitionReassignmentsRequest(topics=[other]), 0, ongoing.ListPartitionReassignmentsResponse
        )
        assert not named.topics

        assert move(client, None) == ErrorCode.NONE
        listed = client.call(
            ongoing.ListPartitionReassignmentsRequest(topics=None), 0, ongoing.ListPartitionReassignmentsResponse
        )
        assert not listed.topics


def move(client: WireClient, replicas: list[int] | None) -> int:
    partition = alter.ReassignablePartition(partition_index=0, replicas=replicas)
    request = alter.AlterPartitionReassignmentsRequest(
        topics=[alter.ReassignableTopic(name="moving", partitions=[partition])]
    )
    answer = client.call(request, 0, alter.AlterPartitionReassignmentsResponse)
    return answer.responses[0].partitions[0].error_code
