"""Fetch, versions 4 to 18, with sessions (KIP-227) and topic ids from version 13 on.

Gaps: ``rack_id`` is read but there is only one replica to choose; quotas are not applied.
"""

import asyncio
from uuid import UUID

from quorate.broker.api import Api, HandlerResult, RequestContext
from quorate.broker.fetch_sessions import FetchPlan
from quorate.broker.node import Node
from quorate.broker.partition_reads import PartitionReads
from quorate.kernel.errors import KafkaError
from quorate.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

_SESSIONS_FROM = 7
_TOPIC_IDS_FROM = 13


def handle(node: Node, context: RequestContext, request: FetchRequest) -> HandlerResult:
    uses_topic_ids = context.api_version >= _TOPIC_IDS_FROM
    try:
        plan = node.fetch_sessions.plan(request, uses_topic_ids=uses_topic_ids, now_ms=node.clock.now_ms())
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    reads = PartitionReads(
        node,
        list(plan.targets.values()),
        uses_topic_ids=uses_topic_ids,
        max_bytes=min(request.max_bytes, node.fetch_max_bytes),
        min_bytes=request.min_bytes,
        isolation_level=request.isolation_level,
    )
    if reads.is_enough or request.max_wait_ms <= 0:
        return _response(plan, reads)
    # The watch starts here, not when the coroutine first runs: an append between the two would go unnoticed.
    return _respond_later(plan, reads, reads.wait(request.max_wait_ms))


async def _respond_later(plan: FetchPlan, reads: PartitionReads, enough: "asyncio.Future[None]") -> FetchResponse:
    await enough
    return _response(plan, reads)


def _response(plan: FetchPlan, reads: PartitionReads) -> FetchResponse:
    session = plan.session
    topics: list[FetchableTopicResponse] = []
    partitions: list[PartitionData] = []
    topic_so_far: tuple[str, UUID] | None = None
    for target, data in zip(plan.targets.values(), reads.results, strict=True):
        if session is None or target.has_news(data) or not plan.is_incremental:
            topic = target.topic, target.topic_id
            if topic != topic_so_far:
                topic_so_far, partitions = topic, []
                topics.append(FetchableTopicResponse(topic=topic[0], topic_id=topic[1], partitions=partitions))
            partitions.append(data)
    if session is None:
        return FetchResponse(responses=topics)
    session.move_to_the_end([key for key, data in zip(plan.targets, reads.results, strict=True) if data.records])
    return FetchResponse(session_id=session.session_id, responses=topics)


API = Api(request=FetchRequest, min_version=4, max_version=18, handle=handle)
