"""The folder that a node keeps its logs in. It has one.

- DescribeLogDirs, versions 1 to 4. The answer also carries the node's conditions.
- AlterReplicaLogDirs, versions 1 and 2: a replica is there already, or cannot go there. Tools that move replicas name
  the directory that DescribeLogDirs has told them, and must not fail over it.
"""

from itertools import groupby

from quorate.broker.api import Api
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.conditions import Severity
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import PartitionIndex, TopicName
from quorate.protocol.extensions import ReportedCondition, ReportingDescribeLogDirsResponse
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


DESCRIBE_LOG_DIRS = Api(request=DescribeLogDirsRequest, min_version=1, max_version=4, handle=describe_log_dirs)
ALTER_REPLICA_LOG_DIRS = Api(
    request=AlterReplicaLogDirsRequest, min_version=1, max_version=2, handle=alter_replica_log_dirs, max_elements=10_000
)
