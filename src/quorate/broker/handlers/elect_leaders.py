"""ElectLeaders, versions 0 to 2: the preferred replica, or any live one where a partition has no leader."""

from collections.abc import Iterable

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import PartitionIndex, TopicName
from quorate.metadata.core.commands import ElectionKind, ElectLeaders, PartitionName
from quorate.metadata.core.decisions import PartitionOutcome
from quorate.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

#: Version 0 has no error for the request as a whole: there each partition carries it.
_TOP_LEVEL_ERROR_VERSION = 1


def handle(services: Services, context: RequestContext, request: ElectLeadersRequest) -> HandlerResult:
    try:
        kind = ElectionKind(request.election_type)
    except ValueError:
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    return _elect(services, context, kind, _wanted(request))


async def _elect(
    services: Services, context: RequestContext, kind: ElectionKind, wanted: tuple[PartitionName, ...] | None
) -> ElectLeadersResponse:
    (outcome,) = await services.metadata.submit([ElectLeaders(kind=kind, partitions=wanted)])
    if not isinstance(outcome, KafkaError):
        return ElectLeadersResponse(replica_election_results=_results(outcome.partitions))
    if context.api_version >= _TOP_LEVEL_ERROR_VERSION:
        return ElectLeadersResponse(error_code=outcome.code)
    failed = [
        PartitionOutcome(topic=name.topic, partition=name.partition, error=outcome.code, message=outcome.message)
        for name in wanted or ()
    ]
    return ElectLeadersResponse(replica_election_results=_results(failed))


def _wanted(request: ElectLeadersRequest) -> tuple[PartitionName, ...] | None:
    if request.topic_partitions is None:
        return None
    return tuple(
        PartitionName(TopicName(topic.topic), PartitionIndex(index))
        for topic in request.topic_partitions
        for index in topic.partitions
    )


def _results(outcomes: Iterable[PartitionOutcome]) -> list[ReplicaElectionResult]:
    by_topic: dict[TopicName, list[PartitionResult]] = {}
    for outcome in outcomes:
        by_topic.setdefault(outcome.topic, []).append(
            PartitionResult(partition_id=outcome.partition, error_code=outcome.error, error_message=outcome.message)
        )
    return [ReplicaElectionResult(topic=topic, partition_result=results) for topic, results in by_topic.items()]


API = Api(request=ElectLeadersRequest, min_version=0, max_version=2, handle=handle, max_elements=100_000)
