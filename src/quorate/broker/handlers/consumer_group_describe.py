"""ConsumerGroupDescribe, versions 0 to 1: state, epochs, members and assignments of consumer groups.

Gap: authorized operations are not reported.
"""

import asyncio

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.coordination.groups.core.consumer.commands import (
    DescribeConsumerGroup,
    DescribeConsumerGroupResult,
    DescribedConsumerMember,
)
from quorate.coordination.groups.core.consumer.topics import Partitions, by_topic
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId
from quorate.metadata.core.image import MetadataImage
from quorate.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def handle(services: Services, context: RequestContext, request: ConsumerGroupDescribeRequest) -> HandlerResult:
    return _describe(services, request)


async def _describe(services: Services, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    groups = await asyncio.gather(*(_describe_one(services, GroupId(name)) for name in request.group_ids))
    return ConsumerGroupDescribeResponse(groups=groups)


async def _describe_one(services: Services, group_id: GroupId) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID, error_message=None, group_id=group_id)
    result = await services.groups.ask(group_id, DescribeConsumerGroup(group_id=group_id), DescribeConsumerGroupResult)
    image = services.metadata.image
    return DescribedGroup(
        error_code=result.error,
        error_message=result.message,
        group_id=group_id,
        group_state=result.state,
        group_epoch=result.epoch,
        assignment_epoch=result.target_epoch,
        assignor_name=result.assignor,
        members=[_member(image, member) for member in result.members],
    )


def _member(image: MetadataImage, member: DescribedConsumerMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern or "",
        assignment=_assignment(image, member.assigned),
        target_assignment=_assignment(image, member.target),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(image: MetadataImage, partitions: Partitions) -> Assignment:
    named = ((image.topic_names.get(topic_id), topic_id, indexes) for topic_id, indexes in by_topic(partitions))
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=indexes)
            for name, topic_id, indexes in named
            if name is not None  # The topic has just been deleted; the group will hear of it.
        ]
    )


API = Api(
    request=ConsumerGroupDescribeRequest,
    min_version=0,
    max_version=1,
    handle=handle,
    parts=(Parts(of=("group_ids",), into=("groups",), distinct_by=(), per_part=10),),
)
