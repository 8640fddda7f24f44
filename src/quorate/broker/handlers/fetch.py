"""Fetch, versions 4 to 18, with sessions (KIP-227) and topic ids from version 13 on.

A consumer that names its rack is sent to an in-sync replica there (KIP-392). One over its quota still gets what it
asked for, but its connection is not read from for a time (KIP-219).
"""

import asyncio
from collections.abc import Sequence
from uuid import UUID

from quorate.broker.api import Api, HandlerResult
from quorate.broker.fetch.partition_reads import NO_HINT, TOPIC_IDS_FROM, PartitionReads, topic_name
from quorate.broker.fetch.sessions import RequestedFetch
from quorate.broker.leader_hints import endpoints
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from quorate.security.acls import AclOperation, AclResourceType
from quorate.security.api_rules import FETCHED_TOPICS, is_follower

_ENDPOINTS_FROM = 16
_NO_TOPICS: frozenset[str] = frozenset()
#: More partitions, of a request or of a session, are read in several turns of the loop.
_READ_AT_ONCE = 1_000


def fetch(services: Services, context: RequestContext, request: FetchRequest) -> HandlerResult:
    uses_topic_ids = context.api_version >= TOPIC_IDS_FROM
    try:
        plan = services.fetch_sessions.plan(request, uses_topic_ids=uses_topic_ids, now_ms=services.clock.now_ms())
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    follower_error = _follower_error(context) if is_follower(request) else None
    reads = PartitionReads(
        services,
        list(plan.targets.values()),
        api_version=context.api_version,
        max_bytes=services.quotas.fetch_max_bytes(context, min(request.max_bytes, services.fetch_max_bytes)),
        min_bytes=request.min_bytes,
        isolation_level=request.isolation_level,
        rack_id=request.rack_id,
        refused=_NO_TOPICS
        if context.access.is_full or follower_error is not None
        else _refused_topics(services, context, plan),
        follower_error=follower_error,
    )
    if len(plan.targets) > _READ_AT_ONCE:
        return _respond_in_turns(services, context, plan, reads, request.max_wait_ms)
    reads.read()
    if reads.is_enough or (request.max_wait_ms <= 0 and not reads.is_held_up):
        return _response(services, context, plan, reads)
    # The watch starts here, not when the coroutine first runs: an append between the two would go unnoticed.
    return _respond_later(services, context, plan, reads, reads.wait(request.max_wait_ms))


def _refused_topics(services: Services, context: RequestContext, plan: RequestedFetch) -> frozenset[str]:
    """The topics that the client may not read."""
    image = services.metadata.image
    names = frozenset(filter(None, (topic_name(image, target) for target in plan.targets.values())))
    return names - context.access.allowed(FETCHED_TOPICS, names)


def _follower_error(context: RequestContext) -> ErrorCode:
    """Of a client that plays a follower: no replica comes this way, as nodes fetch from each other's peer ports."""
    may = context.access.named.may(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER)
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if may else ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def _respond_in_turns(
    services: Services, context: RequestContext, plan: RequestedFetch, reads: PartitionReads, max_wait_ms: int
) -> FetchResponse:
    await reads.read_in_turns(services.turns)
    if reads.is_enough or (max_wait_ms <= 0 and not reads.is_held_up):
        reads.unwatch()
    else:
        await reads.wait(max_wait_ms)
        reads.end()
    return _response(services, context, plan, reads)


async def _respond_later(
    services: Services,
    context: RequestContext,
    plan: RequestedFetch,
    reads: PartitionReads,
    enough: "asyncio.Future[None]",
) -> FetchResponse:
    await enough
    reads.end()
    return _response(services, context, plan, reads)


def _response(
    services: Services, context: RequestContext, plan: RequestedFetch, reads: PartitionReads
) -> FetchResponse:
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
    leaders = [data.current_leader.leader_id for data in reads.results if data.current_leader is not NO_HINT]
    where: Sequence[NodeEndpoint] = ()
    if leaders and context.api_version >= _ENDPOINTS_FROM:
        where = endpoints(services.metadata.image, leaders, NodeEndpoint, context.listener)
    throttle_time_ms = services.quotas.throttle_fetch(context, reads.size_bytes)
    if session is None:
        return FetchResponse(throttle_time_ms=throttle_time_ms, responses=topics, node_endpoints=where)
    session.move_to_the_end([key for key, data in zip(plan.targets, reads.results, strict=True) if data.records])
    return FetchResponse(
        throttle_time_ms=throttle_time_ms,
        session_id=session.session_id,
        responses=topics,
        node_endpoints=where,
    )


FETCH = Api(request=FetchRequest, min_version=4, max_version=18, handle=fetch, is_hot=True)
