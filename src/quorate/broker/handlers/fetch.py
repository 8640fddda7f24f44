"""Fetch, versions 4 to 18, with sessions (KIP-227) and topic ids from version 13 on.

Gaps: ``rack_id`` is read but there is only one replica to choose; quotas are not applied.
"""

import asyncio
from itertools import groupby

from quorate.broker.api import Api, HandlerResult, RequestContext
from quorate.broker.fetch_sessions import FetchPlan, FetchTarget, TargetKey
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
    answered: list[tuple[FetchTarget, PartitionData]] = []
    gave_data: list[TargetKey] = []
    for (key, target), data in zip(plan.targets.items(), reads.results, strict=True):
        if plan.session is None or target.has_news(data) or not plan.is_incremental:
            answered.append((target, data))
        if data.records:
            gave_data.append(key)
    if plan.session is not None:
        plan.session.move_to_the_end(gave_data)
    return FetchResponse(
        session_id=plan.session.session_id if plan.session is not None else 0,
        responses=[
            FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=[data for _, data in group])
            for (topic, topic_id), group in groupby(answered, key=lambda pair: (pair[0].topic, pair[0].topic_id))
        ],
    )


API = Api(request=FetchRequest, min_version=4, max_version=18, handle=handle)
