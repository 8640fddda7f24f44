"""Topics and their partitions: created, extended, deleted, or only their first records.

Partitions get other replicas while they are in use (KIP-455), and their preferred leaders are elected. A partition also
tells which idempotent producers it remembers (KIP-664).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from quorate.client.cluster import Cluster
from quorate.client.errors import check, error_code
from quorate.client.leader_calls import LeaderCall, PartitionAnswer, by_topic, call_leaders
from quorate.client.routing import Route
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import (
    NO_TOPIC_ID,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicName,
    TopicPartition,
)
from quorate.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from quorate.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from quorate.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from quorate.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from quorate.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from quorate.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from quorate.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

#: Let the cluster's own default decide.
BROKER_DEFAULT = -1
#: From this version on topics to delete can be named by id, in another field.
_DELETE_BY_ID_VERSION = 6


class NewTopic(msgspec.Struct, frozen=True, kw_only=True):
    name: TopicName
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = {}
    #: The brokers of each partition, the preferred leader first; then the two counts above are not used.
    assignments: Mapping[PartitionIndex, Sequence[NodeId]] | None = None


class Topics:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def create(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> dict[TopicName, TopicId]:
        """Create them and return their ids. Raises at the first that fails; those before it were created."""
        waiting = {topic.name: topic for topic in topics}
        created: dict[TopicName, TopicId] = {}

        def attempt() -> dict[TopicName, TopicId]:
            request = CreateTopicsRequest(
                topics=[_creatable(topic) for topic in waiting.values()],
                timeout_ms=self._cluster.config.request_timeout_ms,
                validate_only=validate_only,
            )
            answer = self._cluster.ask_controller(request, CreateTopicsResponse)
            for result in sorted(answer.topics, key=lambda result: result.error_code):
                check(result.error_code, f"create topic {result.name}", result.error_message)
                created[TopicName(result.name)] = TopicId(result.topic_id)
                waiting.pop(TopicName(result.name), None)
            return created

        self._cluster.retry("CreateTopics", attempt)
        return created if validate_only else self._with_ids(created)

    def delete(self, names: Iterable[str]) -> None:
        waiting = {TopicName(name) for name in names}

        def build(version: int) -> DeleteTopicsRequest:
            timeout_ms = self._cluster.config.request_timeout_ms
            if version >= _DELETE_BY_ID_VERSION:
                states = [DeleteTopicState(name=name) for name in sorted(waiting)]
                return DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
            return DeleteTopicsRequest(topic_names=sorted(waiting), timeout_ms=timeout_ms)

        def attempt() -> None:
            answer = self._cluster.ask_controller_in_version(DeleteTopicsRequest, DeleteTopicsResponse, build)
            for result in sorted(answer.responses, key=lambda result: result.error_code):
                check(result.error_code, f"delete topic {result.name}", result.error_message)
                waiting.discard(TopicName(result.name or ""))

        self._cluster.retry("DeleteTopics", attempt)

    def add_partitions(self, counts: Mapping[str, int]) -> None:
        """Give each topic as many partitions as named, which must be more than it has."""

        def attempt() -> None:
            request = CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()
                ],
                timeout_ms=self._cluster.config.request_timeout_ms,
            )
            answer = self._cluster.ask_controller(request, CreatePartitionsResponse)
            for result in answer.results:
                check(result.error_code, f"add partitions to topic {result.name}", result.error_message)

        self._cluster.retry("CreatePartitions", attempt)

    def delete_records(self, before: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, Offset]:
        """Delete what stands before each offset (-1: before the high watermark); returns where the logs start now."""

        def build(routes: list[tuple[Route, Offset]]) -> DeleteRecordsRequest:
            topics: dict[str, list[DeleteRecordsPartition]] = {}
            for route, offset in routes:
                topics.setdefault(route.partition.topic, []).append(
                    DeleteRecordsPartition(partition_index=route.partition.partition, offset=offset)
                )
            return DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
                timeout_ms=self._cluster.config.request_timeout_ms,
            )

        call = LeaderCall(
            what="delete records of", response_type=DeleteRecordsResponse, build=build, read=_read_low_watermarks
        )
        return call_leaders(self._cluster, call, before)

    def _with_ids(self, created: dict[TopicName, TopicId]) -> dict[TopicName, TopicId]:
        """Brokers before CreateTopics 7 do not name the ids; those that have none keep the zero id."""
        unnamed = [name for name, topic_id in created.items() if topic_id == NO_TOPIC_ID]
        if unnamed:
            metadata = self._cluster.retry("Metadata", lambda: self._cluster.metadata(unnamed))
            created.update({name: topic.topic_id for name, topic in metadata.topics.items()})
        return created


def _creatable(topic: NewTopic) -> CreatableTopic:
    has_assignments = topic.assignments is not None
    return CreatableTopic(
        name=topic.name,
        num_partitions=BROKER_DEFAULT if has_assignments else topic.partitions,
        replication_factor=BROKER_DEFAULT if has_assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(broker_ids))
            for index, broker_ids in (topic.assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _read_low_watermarks(answer: DeleteRecordsResponse) -> Iterator[PartitionAnswer[Offset]]:
    for topic in answer.topics:
        for found in topic.partitions:
            yield PartitionAnswer(
                TopicPartition(TopicName(topic.name), PartitionIndex(found.partition_index)),
                error_code(found.error_code),
                Offset(found.low_watermark),
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


class ActiveProducer(msgspec.Struct, frozen=True, kw_only=True):
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    #: None where no transaction is open.
    current_transaction_start_offset: Offset | None


class Producers:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[ActiveProducer]]:
        call = LeaderCall(
            what="describe the producers of", response_type=DescribeProducersResponse, build=_build, read=_read
        )
        return call_leaders(self._cluster, call, dict.fromkeys(partitions))


def _build(routes: list[tuple[Route, None]]) -> DescribeProducersRequest:
    topics = by_topic(route.partition for route, _ in routes)
    return DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
    )


def _read(answer: DescribeProducersResponse) -> Iterator[PartitionAnswer[list[ActiveProducer]]]:
    for topic in answer.topics:
        for found in topic.partitions:
            producers = [
                ActiveProducer(
                    producer_id=ProducerId(state.producer_id),
                    producer_epoch=ProducerEpoch(state.producer_epoch),
                    last_sequence=state.last_sequence,
                    last_timestamp=state.last_timestamp,
                    coordinator_epoch=state.coordinator_epoch,
                    current_transaction_start_offset=(
                        Offset(state.current_txn_start_offset) if state.current_txn_start_offset >= 0 else None
                    ),
                )
                for state in found.active_producers
            ]
            yield PartitionAnswer(
                TopicPartition(TopicName(topic.name), PartitionIndex(found.partition_index)),
                error_code(found.error_code),
                producers,
                found.error_message,
            )
