"""Where replicas are and which of them leads.

- AlterPartitionReassignments, versions 0 to 1: partitions get other replicas, or a reassignment is cancelled.
- ListPartitionReassignments, version 0: what is under way, as the image has it.
- ElectLeaders, versions 0 to 2: the preferred replica, or any live one where a partition has no leader.
"""

from collections.abc import Iterable

from quorate.broker.api import Api
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId, PartitionIndex, TopicName
from quorate.metadata.core.commands import (
    AlterPartitionReassignments,
    ElectionKind,
    ElectLeaders,
    PartitionName,
    PartitionReassignment,
)
from quorate.metadata.core.decisions import PartitionOutcome
from quorate.metadata.core.replica_changes import list_reassignments
from quorate.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from quorate.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from quorate.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

#: Version 0 has no error for the request as a whole: there each partition carries it.
_TOP_LEVEL_ERROR_VERSION = 1


async def alter_partition_reassignments(
    services: Services, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    command = AlterPartitionReassignments(
        reassignments=_reassignments(request),
        allow_replication_factor_change=request.allow_replication_factor_change,
    )
    (outcome,) = await services.metadata.submit([command])
    if isinstance(outcome, KafkaError):
        return AlterPartitionReassignmentsResponse(error_code=outcome.code, error_message=outcome.message)
    by_topic: dict[TopicName, list[ReassignablePartitionResponse]] = {}
    for partition in outcome.partitions:
        by_topic.setdefault(partition.topic, []).append(
            ReassignablePartitionResponse(
                partition_index=partition.partition, error_code=partition.error, error_message=partition.message
            )
        )
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[ReassignableTopicResponse(name=name, partitions=answers) for name, answers in by_topic.items()],
    )


def _reassignments(request: AlterPartitionReassignmentsRequest) -> tuple[PartitionReassignment, ...]:
    return tuple(
        PartitionReassignment(
            topic=TopicName(topic.name),
            partition=PartitionIndex(partition.partition_index),
            replicas=None if partition.replicas is None else tuple(NodeId(node) for node in partition.replicas),
        )
        for topic in request.topics
        for partition in topic.partitions
    )


def list_partition_reassignments(
    services: Services, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    wanted = None
    if request.topics is not None:
        wanted = [
            PartitionName(TopicName(topic.name), PartitionIndex(index))
            for topic in request.topics
            for index in topic.partition_indexes
        ]
    by_topic: dict[TopicName, list[OngoingPartitionReassignment]] = {}
    for name, state in list_reassignments(services.metadata.image, wanted):
        by_topic.setdefault(name.topic, []).append(
            OngoingPartitionReassignment(
                partition_index=name.partition,
                replicas=state.replicas,
                adding_replicas=state.adding_replicas,
                removing_replicas=state.removing_replicas,
            )
        )
    topics = [OngoingTopicReassignment(name=name, partitions=ongoing) for name, ongoing in by_topic.items()]
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


async def elect_leaders(
    services: Services, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    try:
        kind = ElectionKind(request.election_type)
    except ValueError:
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    wanted = _wanted(request)
    (outcome,) = await services.metadata.submit([ElectLeaders(kind=kind, partitions=wanted)])
    if not isinstance(outcome, KafkaError):
        return ElectLeadersResponse(replica_election_results=_results(outcome.partitions))
    if context.api_version >= _TOP_LEVEL_ERROR_VERSION:
        return ElectLeadersResponse(error_code=outcome.code)
    failed = [
        PartitionOutcome(topic=name.topic, partition=name.partition, error=outcome.code, message=outcome.message)
        for name in wanted or ()
    ]
    return ElectLeadersResponse(replica_election_results=_results(failed))


def _wanted(request: ElectLeadersRequest) -> tuple[PartitionName, ...] | None:
    if request.topic_partitions is None:
        return None
    return tuple(
        PartitionName(TopicName(topic.topic), PartitionIndex(index))
        for topic in request.topic_partitions
        for index in topic.partitions
    )


def _results(outcomes: Iterable[PartitionOutcome]) -> list[ReplicaElectionResult]:
    by_topic: dict[TopicName, list[PartitionResult]] = {}
    for outcome in outcomes:
        by_topic.setdefault(outcome.topic, []).append(
            PartitionResult(partition_id=outcome.partition, error_code=outcome.error, error_message=outcome.message)
        )
    return [ReplicaElectionResult(topic=topic, partition_result=results) for topic, results in by_topic.items()]


ALTER_PARTITION_REASSIGNMENTS = Api(
    request=AlterPartitionReassignmentsRequest,
    min_version=0,
    max_version=1,
    handle=alter_partition_reassignments,
    max_elements=100_000,
)
LIST_PARTITION_REASSIGNMENTS = Api(
    request=ListPartitionReassignmentsRequest, min_version=0, max_version=0, handle=list_partition_reassignments
)
ELECT_LEADERS = Api(
    request=ElectLeadersRequest, min_version=0, max_version=2, handle=elect_leaders, max_elements=100_000
)
