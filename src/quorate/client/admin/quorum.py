"""The quorum that keeps a cluster's metadata: who leads it, how far its members are, who belongs to it."""

from collections.abc import Mapping, Sequence

import msgspec

from quorate.client.admin.brokers import ask_other_than
from quorate.client.cluster import Cluster
from quorate.client.errors import check
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId, Offset, Term
from quorate.kernel.topic_names import CLUSTER_METADATA
from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from quorate.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from quorate.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


class QuorumMember(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    is_voter: bool
    log_end_offset: Offset
    #: Wall-clock times of the leader, -1 where it does not know.
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumDescription(msgspec.Struct, frozen=True, kw_only=True):
    leader: NodeId
    term: Term
    high_watermark: Offset
    members: Mapping[NodeId, QuorumMember]
    #: Where members listen for each other, as far as the cluster tells.
    addresses: Mapping[NodeId, Address]

    @property
    def voters(self) -> list[NodeId]:
        return sorted(node_id for node_id, member in self.members.items() if member.is_voter)

    def lag(self, node_id: NodeId) -> int:
        """How many entries of the metadata log a member does not have yet, as its leader knows."""
        end = max(member.log_end_offset for member in self.members.values())
        return end - self.members[node_id].log_end_offset


class MetadataQuorum:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self) -> QuorumDescription:
        """Asks once: that a quorum has no leader now is an answer, and not a reason to wait."""
        request = DescribeQuorumRequest(
            topics=[RequestTopicData(topic_name=CLUSTER_METADATA, partitions=[RequestPartitionData(partition_index=0)])]
        )
        answer = self._cluster.ask_any(request, DescribeQuorumResponse)
        check(answer.error_code, "describe the quorum", answer.error_message)
        for topic in answer.topics:
            for partition in topic.partitions:
                check(partition.error_code, "describe the quorum", partition.error_message)
                return _read(partition, answer)
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "cannot describe the quorum: the answer is empty")

    def add_voter(self, node_id: NodeId, cluster_id: str | None = None) -> None:
        """Make a voter of a node that follows the metadata log. One that is a voter already is no failure."""
        timeout_ms = self._cluster.config.request_timeout_ms
        request = AddRaftVoterRequest(cluster_id=cluster_id, timeout_ms=timeout_ms * 2 // 3, voter_id=node_id)

        def attempt() -> None:
            answer = self._cluster.ask_any(request, AddRaftVoterResponse)
            if answer.error_code != ErrorCode.DUPLICATE_VOTER:
                check(answer.error_code, f"make node {node_id} a voter", answer.error_message)

        self._cluster.retry("AddRaftVoter", attempt)

    def remove_member(self, node_id: NodeId, cluster_id: str | None = None) -> None:
        """Take a node out of the quorum. One that is no member is no failure."""
        request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=node_id)

        def attempt() -> None:
            answer = ask_other_than(self._cluster, node_id, request, RemoveRaftVoterResponse)
            if answer.error_code != ErrorCode.VOTER_NOT_FOUND:
                check(answer.error_code, f"remove node {node_id} from the quorum", answer.error_message)

        self._cluster.retry("RemoveRaftVoter", attempt)


def _read(partition: ResponsePartitionData, answer: DescribeQuorumResponse) -> QuorumDescription:
    voters = _members(partition.current_voters, is_voter=True)
    learners = _members(partition.observers, is_voter=False)
    return QuorumDescription(
        leader=NodeId(partition.leader_id),
        term=Term(partition.leader_epoch),
        high_watermark=Offset(partition.high_watermark),
        members=learners | voters,
        addresses={
            NodeId(node.node_id): Address(listener.host, listener.port)
            for node in answer.nodes
            for listener in node.listeners[:1]
        },
    )


def _members(replicas: Sequence[ReplicaState], *, is_voter: bool) -> dict[NodeId, QuorumMember]:
    return {
        NodeId(replica.replica_id): QuorumMember(
            node_id=NodeId(replica.replica_id),
            is_voter=is_voter,
            log_end_offset=Offset(replica.log_end_offset),
            last_fetch_ms=replica.last_fetch_timestamp,
            last_caught_up_ms=replica.last_caught_up_timestamp,
        )
        for replica in replicas
    }
