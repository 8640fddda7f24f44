"""Which replicas partitions have, changed while they are in use (KIP-455), and elections of preferred leaders."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from quorate.client.answers import check, error_code
from quorate.client.cluster import Cluster
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId, PartitionIndex, TopicName, TopicPartition
from quorate.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from quorate.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from quorate.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

_PREFERRED = 0


class OngoingReassignment(msgspec.Struct, frozen=True, kw_only=True):
    #: All that have the partition now, the arriving and the leaving ones among them.
    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]


class Reassignments:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def ongoing(self) -> dict[TopicPartition, OngoingReassignment]:
        return self._cluster.retry("ListPartitionReassignments", self._ongoing)

    def alter(self, targets: Mapping[TopicPartition, Sequence[NodeId] | None]) -> None:
        """Give partitions other replicas, as many as before; None cancels what is under way.

        Returns once it is decided, not done. Raises INVALID_REPLICATION_FACTOR where there would be more or fewer: the
        plan was then made while the partition moved.
        """
        by_topic: dict[TopicName, list[ReassignablePartition]] = {}
        for name, replicas in targets.items():
            by_topic.setdefault(name.topic, []).append(
                ReassignablePartition(partition_index=name.partition, replicas=replicas)
            )
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._cluster.config.request_timeout_ms,
            allow_replication_factor_change=False,
            topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in by_topic.items()],
        )

        def attempt() -> None:
            answer = self._cluster.ask_controller(request, AlterPartitionReassignmentsResponse)
            check(answer.error_code, "reassign partitions", answer.error_message)
            for topic in answer.responses:
                for partition in topic.partitions:
                    what = f"reassign {topic.name}-{partition.partition_index}"
                    check(partition.error_code, what, partition.error_message)

        self._cluster.retry("AlterPartitionReassignments", attempt)

    def elect_preferred_leaders(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Have the first replica of each lead, where it is in sync. Returns those where it is not yet."""
        by_topic: dict[TopicName, list[PartitionIndex]] = {}
        for name in partitions:
            by_topic.setdefault(name.topic, []).append(name.partition)
        request = ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic=name, partitions=found) for name, found in by_topic.items()],
            timeout_ms=self._cluster.config.request_timeout_ms,
        )

        def attempt() -> list[TopicPartition]:
            answer = self._cluster.ask_controller(request, ElectLeadersResponse)
            check(answer.error_code, "elect leaders")
            not_elected = []
            for topic in answer.replica_election_results:
                for result in topic.partition_result:
                    code = error_code(result.error_code)
                    name = TopicPartition(TopicName(topic.topic), PartitionIndex(result.partition_id))
                    if code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
                        not_elected.append(name)
                    elif code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                        raise KafkaError(code, f"cannot elect a leader of {name}: {result.error_message or code.name}")
            return not_elected

        return self._cluster.retry("ElectLeaders", attempt)

    def _ongoing(self) -> dict[TopicPartition, OngoingReassignment]:
        request = ListPartitionReassignmentsRequest(timeout_ms=self._cluster.config.request_timeout_ms, topics=None)
        answer = self._cluster.ask_controller(request, ListPartitionReassignmentsResponse)
        check(answer.error_code, "list the reassignments", answer.error_message)
        return {
            TopicPartition(TopicName(topic.name), PartitionIndex(found.partition_index)): OngoingReassignment(
                replicas=_nodes(found.replicas),
                adding=_nodes(found.adding_replicas),
                removing=_nodes(found.removing_replicas),
            )
            for topic in answer.topics
            for found in topic.partitions
        }


def _nodes(ids: Sequence[int]) -> tuple[NodeId, ...]:
    return tuple(NodeId(node) for node in ids)
