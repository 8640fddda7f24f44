"""What a client is told of the cluster, straight from the image. Gap: authorized operations are not reported.

- Metadata, versions 0 to 13: brokers, topics and who leads each partition. Missing topics are made where the client and
  the node allow it.
- DescribeCluster, versions 0 to 2.
- DescribeTopicPartitions, version 0: topics in name order, in pages (KIP-966). Gap: eligible leader replicas are not
  reported.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from itertools import islice
from uuid import UUID

from quorate.broker.api import MAX_ELEMENTS_IN_PARTS, Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_NODE, NO_TOPIC_ID, PartitionIndex, TopicId, TopicName
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

#: How long after its clients the peers of a killed process hear of its end, at most.
_NEWS_TRAVELS_S = 0.01
#: The topics that one request may have made, as nobody names more by intention; a client that does asks again.
_MAX_CREATED = 1_000
#: An answer about more partitions than this is made in several turns of the loop.
_LARGE_PARTITIONS = 1_000
#: How much later than this node another one may know that it leads now, mostly.
_IMAGES_DIFFER_S = 0.005
_BROKERS = 1
_LARGEST_PAGE = 2000


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
    image = services.metadata.image
    if request.topics is None or (context.api_version == 0 and not request.topics):
        return _answer(services, image, list(image.topics.values()))
    if len(request.topics) > _LARGE_PARTITIONS:
        return _respond_to_many(services, context, request, request.topics)
    # What is named twice is answered once: a topic of many partitions makes a long answer of a short name.
    asked = dict.fromkeys((topic.name, topic.topic_id) for topic in request.topics)
    if request.allow_auto_topic_creation and services.auto_creates_topics:
        missing = [name for name, topic_id in asked if name is not None and _is_missing(image, name, topic_id)]
        if missing:
            return _create_and_respond(services, context, asked, missing)
    return _answer(services, image, [_named_topic(context, image, *each, {}) for each in asked])


async def _respond_to_many(
    services: Services, context: RequestContext, request: MetadataRequest, topics: Sequence[MetadataRequestTopic]
) -> MetadataResponse:
    """The same for so many names that to look for them takes several turns of the loop."""
    image = services.metadata.image
    asked = dict.fromkeys([(topic.name, topic.topic_id) async for topic in services.turns.sliced(topics)])
    errors: dict[str, ErrorCode] = {}
    if request.allow_auto_topic_creation and services.auto_creates_topics:
        missing = (name for name, topic_id in asked if name is not None and _is_missing(image, name, topic_id))
        errors = await _create_topics(services, list(islice(missing, _MAX_CREATED)))
        image = services.metadata.image
    found = [_named_topic(context, image, *each, errors) async for each in services.turns.sliced(asked)]
    return await _answer_in_turns(services, image, found)


def _is_missing(image: MetadataImage, name: str, topic_id: UUID) -> bool:
    return topic_id == NO_TOPIC_ID and TopicName(name) not in image.topics


async def _create_and_respond(
    services: Services, context: RequestContext, asked: Iterable[tuple[str | None, UUID]], missing: Sequence[str]
) -> MetadataResponse:
    errors = await _create_topics(services, missing)
    image = services.metadata.image
    answer = _answer(services, image, [_named_topic(context, image, *each, errors) for each in asked])
    return answer if isinstance(answer, MetadataResponse) else await answer


async def _create_topics(services: Services, names: Sequence[str]) -> dict[str, ErrorCode]:
    """Make topics that a client asked for; returns why not for those that could not be made."""
    allowed = [name for name in names if not is_reserved(name)]
    outcomes = await services.metadata.submit([CreateTopic(name=name) for name in allowed])
    return {
        name: outcome.code
        for name, outcome in zip(allowed, outcomes, strict=True)
        if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS
    }


def _answer(
    services: Services, image: MetadataImage, topics: Sequence[Topic | MetadataResponseTopic]
) -> MetadataResponse | Awaitable[MetadataResponse]:
    if sum(map(_weight, topics)) > _LARGE_PARTITIONS:
        return _answer_in_turns(services, image, topics)
    return _response(services, image, [_described(image, topic) for topic in topics])


async def _answer_in_turns(
    services: Services, image: MetadataImage, topics: Sequence[Topic | MetadataResponseTopic]
) -> MetadataResponse:
    described = []
    async with services.describing:
        async for topic in services.turns.sliced(topics, _weight_at_once):
            if isinstance(topic, Topic) and len(topic.partitions) > SLICE_ELEMENTS:
                states = services.turns.sliced(sorted(topic.partitions.items()))
                partitions = [_partition(image, index, state) async for index, state in states]
                described.append(_known_topic(topic, partitions))
            else:
                described.append(_described(image, topic))
    return _response(services, image, described)


def _weight_at_once(topic: Topic | MetadataResponseTopic) -> int:
    """A topic of many partitions takes turns of its own."""
    return 1 if len(topic.partitions) > SLICE_ELEMENTS else _weight(topic)


def _weight(topic: Topic | MetadataResponseTopic) -> int:
    return max(1, len(topic.partitions))


def _described(image: MetadataImage, topic: Topic | MetadataResponseTopic) -> MetadataResponseTopic:
    if not isinstance(topic, Topic):
        return topic
    return _known_topic(topic, [_partition(image, index, state) for index, state in sorted(topic.partitions.items())])


def _response(services: Services, image: MetadataImage, topics: Sequence[MetadataResponseTopic]) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in (*image.live_brokers, *services.quorum.departed_brokers.still_listed(image))
        ],
        cluster_id=image.cluster_id,
        controller_id=services.controller_id,
        topics=topics,
    )


def _named_topic(
    context: RequestContext, image: MetadataImage, name: str | None, topic_id: UUID, errors: dict[str, ErrorCode]
) -> Topic | MetadataResponseTopic:
    """The topic, or what is to be said where there is none."""
    if topic_id != NO_TOPIC_ID:
        by_id = image.topic_by_id(TopicId(topic_id))
        if by_id is None:
            unknown = None if context.api_version >= 12 else ""
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=unknown, topic_id=topic_id)
        return by_id
    name = name or ""
    topic = image.topics.get(TopicName(name))
    if topic is None:
        return MetadataResponseTopic(
            error_code=errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), name=name, topic_id=NO_TOPIC_ID
        )
    return topic


def _known_topic(topic: Topic, partitions: Sequence[MetadataResponsePartition]) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
    )


def _partition(image: MetadataImage, index: PartitionIndex, state: PartitionState) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_NODE else ErrorCode.NONE,
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.isr,
        offline_replicas=image.offline_replicas(state),
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
                host=broker.host,
                port=broker.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
            for broker in (image.brokers.values() if request.include_fenced_brokers else image.live_brokers)
        ],
    )


def describe_topic_partitions(
    services: Services, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    image = services.metadata.image
    names = sorted({topic.name for topic in request.topics} or image.topics)
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
            described.append(_unknown(name))
            continue
        indexes = [index for index in sorted(topic.partitions) if index >= first_partition]
        first_partition = 0
        if room == 0:
            cursor = ResponseCursor(topic_name=name, partition_index=indexes[0] if indexes else 0)
            return DescribeTopicPartitionsResponse(topics=described, next_cursor=cursor)
        described.append(_page_of_topic(image, topic, indexes[:room]))
        if len(indexes) > room:
            cursor = ResponseCursor(topic_name=name, partition_index=indexes[room])
            return DescribeTopicPartitionsResponse(topics=described, next_cursor=cursor)
        room -= len(indexes)
    return DescribeTopicPartitionsResponse(topics=described)


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)


def _page_of_topic(
    image: MetadataImage, topic: Topic, indexes: list[PartitionIndex]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_described_partition(image, index, topic.partitions[index]) for index in indexes],
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
