"""ConsumerGroupHeartbeat, versions 0 to 1: a member of a consumer group joins, stays, gets partitions, or leaves."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.coordination.groups.core.consumer.commands import ConsumerGroupHeartbeat
from quorate.coordination.groups.core.consumer.topics import AssignedPartition, Partitions, by_topic
from quorate.kernel.ids import GroupId, MemberId, PartitionIndex, TopicId, TopicName
from quorate.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)

_UNCHANGED = -1
_MEMBER_CHOOSES_ID_FROM = 1


def handle(services: Services, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> HandlerResult:
    return _heartbeat(services, context, request)


async def _heartbeat(
    services: Services, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    command = ConsumerGroupHeartbeat(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=None if timeout_ms == _UNCHANGED else timeout_ms,
        topics=None if names is None else frozenset(map(TopicName, names)),
        pattern=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=_owned(request),
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        chooses_member_id=context.api_version >= _MEMBER_CHOOSES_ID_FROM,
    )
    result = await services.groups.heartbeat(command)
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if result.assignment is None else _assignment(result.assignment),
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    if request.topic_partitions is None:
        return None
    return frozenset(
        AssignedPartition(TopicId(topic.topic_id), PartitionIndex(index))
        for topic in request.topic_partitions
        for index in topic.partitions
    )


def _assignment(partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            ResponseTopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic(partitions)
        ]
    )


API = Api(request=ConsumerGroupHeartbeatRequest, min_version=0, max_version=1, handle=handle)
