"""Metadata, versions 0 to 13: brokers, topics and who leads each partition, straight from the image.

Missing topics are made where the client and the node allow it. Gap: authorized operations are not reported.
"""

import asyncio
from collections.abc import Awaitable, Sequence

from quorate.broker.api import Api, HandlerResult, RequestContext
from quorate.broker.node import Node
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_NODE, NO_TOPIC_ID, PartitionIndex, TopicId, TopicName
from quorate.metadata.image import MetadataImage, PartitionState, Topic
from quorate.metadata.topic_names import INTERNAL_TOPICS
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
#: How much later than this node another one may know that it leads now, mostly.
_IMAGES_DIFFER_S = 0.005


def handle(node: Node, context: RequestContext, request: MetadataRequest) -> HandlerResult:
    if node.quorum.leader_doubt.exists or (request.topics and node.has_peers):
        return _respond_when_certain(node, context, request)
    return _respond(node, context, request)


async def _respond_when_certain(node: Node, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """A leader may have gone just now: the answer that names the next one is worth the wait.

    Who asks for certain topics often does so because their leader hung up. When a process is killed the kernel closes
    its sockets one after the other, the newest first: its clients know a moment earlier than its peers. And a leader
    that does not know of its election yet turns a client away, which costs it a backoff.
    """
    await asyncio.sleep(_NEWS_TRAVELS_S)
    if node.quorum.leader_doubt.exists:
        await node.quorum.leader_doubt.end()
        await asyncio.sleep(_IMAGES_DIFFER_S)
    response = _respond(node, context, request)
    return response if isinstance(response, MetadataResponse) else await response


def _respond(
    node: Node, context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse]:
    image = node.metadata.image
    if request.topics is None or (context.api_version == 0 and not request.topics):
        return _response(node, image, [_known_topic(image, topic) for topic in image.topics.values()])
    missing = {t.name for t in request.topics if t.name is not None and t.topic_id == NO_TOPIC_ID} - set(image.topics)
    if missing and request.allow_auto_topic_creation and node.auto_creates_topics:
        return _create_and_respond(node, context, request.topics, sorted(missing))
    return _response(node, image, [_named_topic(context, image, topic, {}) for topic in request.topics])


async def _create_and_respond(
    node: Node, context: RequestContext, topics: Sequence[MetadataRequestTopic], missing: Sequence[str]
) -> MetadataResponse:
    errors = await node.auto_create_topics(missing)
    image = node.metadata.image
    return _response(node, image, [_named_topic(context, image, topic, errors) for topic in topics])


def _response(node: Node, image: MetadataImage, topics: Sequence[MetadataResponseTopic]) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in (*image.live_brokers, *node.quorum.departed_brokers.still_listed(image))
        ],
        cluster_id=image.cluster_id,
        controller_id=node.controller_id,
        topics=topics,
    )


def _named_topic(
    context: RequestContext, image: MetadataImage, wanted: MetadataRequestTopic, errors: dict[str, ErrorCode]
) -> MetadataResponseTopic:
    if wanted.topic_id != NO_TOPIC_ID:
        by_id = image.topic_by_id(TopicId(wanted.topic_id))
        if by_id is None:
            name = None if context.api_version >= 12 else ""
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=name, topic_id=wanted.topic_id)
        return _known_topic(image, by_id)
    name = wanted.name or ""
    topic = image.topics.get(TopicName(name))
    if topic is None:
        return MetadataResponseTopic(
            error_code=errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), name=name, topic_id=NO_TOPIC_ID
        )
    return _known_topic(image, topic)


def _known_topic(image: MetadataImage, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(image, index, state) for index, state in sorted(topic.partitions.items())],
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


API = Api(request=MetadataRequest, min_version=0, max_version=13, handle=handle)
