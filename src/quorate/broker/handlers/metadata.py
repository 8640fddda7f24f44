"""What a client is told of the cluster, straight from the image, as far as it may know.

- Metadata, versions 0 to 13: brokers, topics and who leads each partition. Missing topics are made where the client and
  the node allow it.
- DescribeCluster, versions 0 to 2.
- DescribeTopicPartitions, version 0: topics in name order, in pages (KIP-966). Gap: eligible leader replicas are not
  reported.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from itertools import islice
from uuid import UUID

import msgspec

from quorate.broker.api import MAX_ELEMENTS_IN_PARTS, Api, HandlerResult
from quorate.broker.request_access import RequestAccess
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError, ThrottlingError
from quorate.kernel.ids import NO_NODE, NO_TOPIC_ID, NodeId, PartitionIndex, TopicId, TopicName
from quorate.kernel.topic_names import INTERNAL_TOPICS, is_reserved
from quorate.kernel.turns import SLICE_ELEMENTS
from quorate.metadata.core.commands import CreateTopic
from quorate.metadata.core.image import MetadataImage, PartitionState, Topic
from quorate.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from quorate.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)
from quorate.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from quorate.security.acls import AclResourceType
from quorate.security.api_rules import CLUSTER_OPERATIONS, LISTED_TOPICS, TOPICS_TO_CREATE
from quorate.security.authorizer import OPERATIONS_NOT_ASKED_FOR

#: How long after its clients the peers of a killed process hear of its end, at most.
_NEWS_TRAVELS_S = 0.01
#: The topics that one request may have made, as nobody names more by intention; a client that does asks again.
_MAX_CREATED = 1_000
#: An answer about more partitions than this is made in several turns of the loop.
_LARGE_PARTITIONS = 1_000
#: How much later than this node another one may know that it leads now, mostly.
_IMAGES_DIFFER_S = 0.005
_BROKERS = 1
_LISTENER_NOT_FOUND_FROM = 6
_LARGEST_PAGE = 2000


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster as a client sees it that came by some listener: of the others it knows no address."""

    image: MetadataImage
    listener: str
    #: Brokers without a listener of that name, and what is said of partitions that one of them leads.
    unreachable: frozenset[NodeId]
    unreachable_error: ErrorCode
    access: RequestAccess
    #: Whether the answer says which operations the client may do, on the cluster and on topics.
    tells_cluster_operations: bool = False
    tells_topic_operations: bool = False


def metadata(services: Services, context: RequestContext, request: MetadataRequest) -> HandlerResult:
    if services.quorum.leadership_uncertainty.exists or (request.topics and services.has_peers):
        return _respond_when_certain(services, context, request)
    return _respond(services, context, request)


async def _respond_when_certain(
    services: Services, context: RequestContext, request: MetadataRequest
) -> MetadataResponse:
    """A leader may have gone just now: the answer that names the next one is worth the wait.

    Who asks for certain topics often does so because their leader hung up. When a process is killed the kernel closes
    its sockets one after the other, the newest first: its clients know a moment earlier than its peers. And a leader
    that does not know of its election yet turns a client away, which costs it a backoff.
    """
    await asyncio.sleep(_NEWS_TRAVELS_S)
    if services.quorum.leadership_uncertainty.exists:
        await services.quorum.leadership_uncertainty.end()
        await asyncio.sleep(_IMAGES_DIFFER_S)
    response = _respond(services, context, request)
    return response if isinstance(response, MetadataResponse) else await response


def _respond(
    services: Services, context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse]:
    seen = _seen(services, context, request)
    image = seen.image
    if request.topics is None or (context.api_version == 0 and not request.topics):
        if seen.access.is_full:
            return _answer(services, seen, list(image.topics.values()))
        return _respond_with_visible(services, seen)
    if len(request.topics) > _LARGE_PARTITIONS:
        return _respond_to_many(services, context, request, request.topics)
    asked = _asked(request)
    if request.allow_auto_topic_creation and services.auto_creates_topics:
        missing = [name for name, topic_id in asked if name is not None and _is_missing(image, name, topic_id)]
        if missing:
            return _create_and_respond(services, context, request, missing)
    return _answer(services, seen, [_named_topic(context, seen, *each, {}) for each in asked])


def _asked(request: MetadataRequest) -> dict[tuple[str | None, UUID], None]:
    """What is named twice is answered once: a topic of many partitions makes a long answer of a short name."""
    return dict.fromkeys((topic.name, topic.topic_id) for topic in request.topics or ())


async def _respond_with_visible(services: Services, seen: _Seen) -> MetadataResponse:
    """All topics that the client may know of."""
    topics = [
        topic
        async for topic in services.turns.sliced(seen.image.topics.values())
        if seen.access.may(LISTED_TOPICS, topic.name)
    ]
    return await _answer_in_turns(services, seen, topics)


async def _respond_to_many(
    services: Services, context: RequestContext, request: MetadataRequest, topics: Sequence[MetadataRequestTopic]
) -> MetadataResponse:
    """The same for so many names that to look for them takes several turns of the loop."""
    seen = _seen(services, context, request)
    asked = dict.fromkeys([(topic.name, topic.topic_id) async for topic in services.turns.sliced(topics)])
    errors: dict[str, ErrorCode] = {}
    if request.allow_auto_topic_creation and services.auto_creates_topics:
        missing = (name for name, topic_id in asked if name is not None and _is_missing(seen.image, name, topic_id))
        errors = await _create_topics(services, context, list(islice(missing, _MAX_CREATED)))
        seen = _seen(services, context, request)
    found = [_named_topic(context, seen, *each, errors) async for each in services.turns.sliced(asked)]
    return await _answer_in_turns(services, seen, found)


def _is_missing(image: MetadataImage, name: str, topic_id: UUID) -> bool:
    return topic_id == NO_TOPIC_ID and TopicName(name) not in image.topics


async def _create_and_respond(
    services: Services, context: RequestContext, request: MetadataRequest, missing: Sequence[str]
) -> MetadataResponse:
    errors = await _create_topics(services, context, missing)
    seen = _seen(services, context, request)
    answer = _answer(services, seen, [_named_topic(context, seen, *each, errors) for each in _asked(request)])
    return answer if isinstance(answer, MetadataResponse) else await answer


async def _create_topics(services: Services, context: RequestContext, names: Sequence[str]) -> dict[str, ErrorCode]:
    """Make topics that a client asked for; returns why not for those that could not be made."""
    creatable = context.access.allowed(TOPICS_TO_CREATE, names)
    allowed = [name for name in names if name in creatable and not is_reserved(name)]
    # A client is told nothing of its rate here: it asks again, as for a topic that is still to come.
    charge = services.quotas.mutation_charge(context, strict_since=0)
    outcomes = await services.metadata.submit([CreateTopic(name=name, charged_to=charge) for name in allowed])
    refused = {name: ErrorCode.TOPIC_AUTHORIZATION_FAILED for name in names if name not in creatable}
    return refused | {
        name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if isinstance(outcome, ThrottlingError) else outcome.code
        for name, outcome in zip(allowed, outcomes, strict=True)
        if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS
    }


def _answer(
    services: Services, seen: _Seen, topics: Sequence[Topic | MetadataResponseTopic]
) -> MetadataResponse | Awaitable[MetadataResponse]:
    if sum(map(_weight, topics)) > _LARGE_PARTITIONS:
        return _answer_in_turns(services, seen, topics)
    return _response(services, seen, [_described(seen, topic) for topic in topics])


async def _answer_in_turns(
    services: Services, seen: _Seen, topics: Sequence[Topic | MetadataResponseTopic]
) -> MetadataResponse:
    described = []
    async with services.describing:
        async for topic in services.turns.sliced(topics, _weight_at_once):
            if isinstance(topic, Topic) and len(topic.partitions) > SLICE_ELEMENTS:
                states = services.turns.sliced(sorted(topic.partitions.items()))
                partitions = [_partition(seen, index, state) async for index, state in states]
                described.append(_known_topic(seen, topic, partitions))
            else:
                described.append(_described(seen, topic))
    return _response(services, seen, described)


def _weight_at_once(topic: Topic | MetadataResponseTopic) -> int:
    """A topic of many partitions takes turns of its own."""
    return 1 if len(topic.partitions) > SLICE_ELEMENTS else _weight(topic)


def _weight(topic: Topic | MetadataResponseTopic) -> int:
    return max(1, len(topic.partitions))


def _described(seen: _Seen, topic: Topic | MetadataResponseTopic) -> MetadataResponseTopic:
    if not isinstance(topic, Topic):
        return topic
    return _known_topic(
        seen, topic, [_partition(seen, index, state) for index, state in sorted(topic.partitions.items())]
    )


def _response(services: Services, seen: _Seen, topics: Sequence[MetadataResponseTopic]) -> MetadataResponse:
    image = seen.image
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.node_id, host=where.host, port=where.port, rack=broker.rack)
            for broker in (*image.live_brokers, *services.quorum.departed_brokers.still_listed(image))
            if (where := broker.endpoint(seen.listener)) is not None
        ],
        cluster_id=image.cluster_id,
        controller_id=services.controller_id,
        topics=topics,
        cluster_authorized_operations=_cluster_operations(seen.access)
        if seen.tells_cluster_operations
        else OPERATIONS_NOT_ASKED_FOR,
    )


def _cluster_operations(access: RequestAccess) -> int:
    return access.operations(AclResourceType.CLUSTER) if access.may(CLUSTER_OPERATIONS) else 0


def _seen(services: Services, context: RequestContext, request: MetadataRequest) -> _Seen:
    image, listener = services.metadata.image, context.listener
    is_told = context.api_version >= _LISTENER_NOT_FOUND_FROM
    return _Seen(
        image=image,
        listener=listener,
        unreachable=frozenset(node for node, broker in image.brokers.items() if broker.endpoint(listener) is None),
        unreachable_error=ErrorCode.LISTENER_NOT_FOUND if is_told else ErrorCode.LEADER_NOT_AVAILABLE,
        access=context.access,
        tells_cluster_operations=request.include_cluster_authorized_operations,
        tells_topic_operations=request.include_topic_authorized_operations,
    )


def _named_topic(
    context: RequestContext, seen: _Seen, name: str | None, topic_id: UUID, errors: dict[str, ErrorCode]
) -> Topic | MetadataResponseTopic:
    """The topic, or what is to be said where there is none."""
    image = seen.image
    if topic_id != NO_TOPIC_ID:
        by_id = image.topic_by_id(TopicId(topic_id))
        if by_id is None:
            unknown = None if context.api_version >= 12 else ""
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=unknown, topic_id=topic_id)
        return by_id
    name = name or ""
    topic = image.topics.get(TopicName(name))
    if topic is None:
        code = errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        tells = seen.tells_topic_operations and code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return MetadataResponseTopic(
            error_code=code,
            name=name,
            topic_id=NO_TOPIC_ID,
            topic_authorized_operations=seen.access.operations(AclResourceType.TOPIC, name)
            if tells
            else OPERATIONS_NOT_ASKED_FOR,
        )
    return topic


def _known_topic(seen: _Seen, topic: Topic, partitions: Sequence[MetadataResponsePartition]) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=seen.access.operations(AclResourceType.TOPIC, topic.name)
        if seen.tells_topic_operations
        else OPERATIONS_NOT_ASKED_FOR,
    )


def _partition(seen: _Seen, index: PartitionIndex, state: PartitionState) -> MetadataResponsePartition:
    leader, error = state.leader, ErrorCode.NONE
    if leader == NO_NODE:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    elif leader in seen.unreachable:
        leader, error = NO_NODE, seen.unreachable_error
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.isr,
        offline_replicas=seen.image.offline_replicas(state),
    )


def describe_cluster(
    services: Services, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to a broker endpoint but asks for controllers.",
        )
    image = services.metadata.image
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=services.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id,
                host=where.host,
                port=where.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
            for broker in (image.brokers.values() if request.include_fenced_brokers else image.live_brokers)
            if (where := broker.endpoint(context.listener)) is not None
        ],
        cluster_authorized_operations=_cluster_operations(context.access)
        if request.include_cluster_authorized_operations
        else OPERATIONS_NOT_ASKED_FOR,
    )


def describe_topic_partitions(
    services: Services, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    image = services.metadata.image
    names = sorted({topic.name for topic in request.topics} or context.access.allowed(LISTED_TOPICS, image.topics))
    first_partition = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            first_partition = request.cursor.partition_index
    room = max(1, min(request.response_partition_limit, _LARGEST_PAGE))
    described: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        topic = image.topics.get(TopicName(name))
        if topic is None:
            described.append(_unknown(context, name))
            continue
        indexes = [index for index in sorted(topic.partitions) if index >= first_partition]
        first_partition = 0
        if room == 0:
            cursor = ResponseCursor(topic_name=name, partition_index=indexes[0] if indexes else 0)
            return DescribeTopicPartitionsResponse(topics=described, next_cursor=cursor)
        described.append(_page_of_topic(context, image, topic, indexes[:room]))
        if len(indexes) > room:
            cursor = ResponseCursor(topic_name=name, partition_index=indexes[room])
            return DescribeTopicPartitionsResponse(topics=described, next_cursor=cursor)
        room -= len(indexes)
    return DescribeTopicPartitionsResponse(topics=described)


def _unknown(context: RequestContext, name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        name=name,
        topic_authorized_operations=context.access.operations(AclResourceType.TOPIC, name),
    )


def _page_of_topic(
    context: RequestContext, image: MetadataImage, topic: Topic, indexes: list[PartitionIndex]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_described_partition(image, index, topic.partitions[index]) for index in indexes],
        topic_authorized_operations=context.access.operations(AclResourceType.TOPIC, topic.name),
    )


def _described_partition(
    image: MetadataImage, index: PartitionIndex, state: PartitionState
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_NODE else ErrorCode.NONE,
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.isr,
        # Empty, not null: the Java admin client fails on null.
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=image.offline_replicas(state),
    )


METADATA = Api(
    request=MetadataRequest, min_version=0, max_version=13, handle=metadata, max_elements=MAX_ELEMENTS_IN_PARTS
)
DESCRIBE_CLUSTER = Api(request=DescribeClusterRequest, min_version=0, max_version=2, handle=describe_cluster)
DESCRIBE_TOPIC_PARTITIONS = Api(
    request=DescribeTopicPartitionsRequest, min_version=0, max_version=0, handle=describe_topic_partitions
)
