"""AlterPartitionReassignments, versions 0 to 1: partitions get other replicas, or a reassignment is cancelled."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import NodeId, PartitionIndex, TopicName
from quorate.metadata.core.commands import AlterPartitionReassignments, PartitionReassignment
from quorate.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def handle(services: Services, context: RequestContext, request: AlterPartitionReassignmentsRequest) -> HandlerResult:
    return _alter(services, request)


async def _alter(
    services: Services, request: AlterPartitionReassignmentsRequest
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


API = Api(request=AlterPartitionReassignmentsRequest, min_version=0, max_version=1, handle=handle, max_elements=100_000)
