"""Where the replicas of partitions are: on which nodes, which of them leads, and in which folder.

- AlterPartitionReassignments, versions 0 to 1: partitions get other replicas, or a reassignment is cancelled.
- ListPartitionReassignments, version 0: what is under way, as the image has it.
- ElectLeaders, versions 0 to 2: the preferred replica, or any live one where a partition has no leader.
- DescribeLogDirs, versions 1 to 4: a node has one log directory. The answer also carries the node's conditions.
- AlterReplicaLogDirs, versions 1 and 2: a replica is there already, or cannot go there. Tools that move replicas name
  the directory that DescribeLogDirs has told them, and must not fail over it.
"""

from collections.abc import Iterable
from itertools import groupby

from quorate.broker.api import Api
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.conditions import Severity
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
from quorate.protocol.extensions import ReportedCondition, ReportingDescribeLogDirsResponse
from quorate.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from quorate.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from quorate.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
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


def describe_log_dirs(
    services: Services, context: RequestContext, request: DescribeLogDirsRequest
) -> ReportingDescribeLogDirsResponse:
    volume = services.disk.space(services.data_dir)
    folder = DescribeLogDirsResult(
        log_dir=services.data_dir,
        topics=_topics(services, request),
        total_bytes=volume.total_bytes,
        usable_bytes=volume.free_bytes,
    )
    conditions = [
        ReportedCondition(
            kind=each.kind,
            subject=each.subject,
            is_problem=each.severity is Severity.PROBLEM,
            sentence=each.sentence,
        )
        for each in services.conditions.reported()
    ]
    return ReportingDescribeLogDirsResponse(results=[folder], conditions=conditions)


def _topics(services: Services, request: DescribeLogDirsRequest) -> list[DescribeLogDirsTopic]:
    """Those asked for; all where none are named."""
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        if not wanted:
            return []
    described = sorted(
        (partition.identity.topic, partition.identity.partition, partition.log.size_bytes)
        for partition in services.partitions
        if wanted is None or (partition.identity.topic, partition.identity.partition) in wanted
    )
    return [
        DescribeLogDirsTopic(
            name=topic,
            partitions=[
                DescribeLogDirsPartition(partition_index=index, partition_size=size) for _, index, size in group
            ],
        )
        for topic, group in groupby(described, key=lambda row: row[0])
    ]


def alter_replica_log_dirs(
    services: Services, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(
                        partition_index=index,
                        error_code=_outcome(services, directory.path, TopicName(topic.name), PartitionIndex(index)),
                    )
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def _outcome(services: Services, path: str, topic: TopicName, index: PartitionIndex) -> ErrorCode:
    if path != services.data_dir:
        return ErrorCode.LOG_DIR_NOT_FOUND
    try:
        services.partitions.replica(topic, index)
    except KafkaError as error:
        # The name that this API has kept for it.
        is_elsewhere = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.REPLICA_NOT_AVAILABLE if is_elsewhere else error.code
    return ErrorCode.NONE


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
DESCRIBE_LOG_DIRS = Api(request=DescribeLogDirsRequest, min_version=1, max_version=4, handle=describe_log_dirs)
ALTER_REPLICA_LOG_DIRS = Api(
    request=AlterReplicaLogDirsRequest, min_version=1, max_version=2, handle=alter_replica_log_dirs, max_elements=10_000
)
