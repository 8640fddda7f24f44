"""AlterReplicaLogDirs, versions 1 and 2. A node has one log directory: a replica is there already, or cannot go there.

Tools that move replicas name the directory that DescribeLogDirs has told them, and must not fail over it.
"""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import PartitionIndex, TopicName
from quorate.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(services: Services, context: RequestContext, request: AlterReplicaLogDirsRequest) -> HandlerResult:
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


API = Api(request=AlterReplicaLogDirsRequest, min_version=1, max_version=2, handle=handle, max_elements=10_000)
