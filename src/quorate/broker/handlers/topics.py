"""Topics, from their creation to their deletion.

- CreateTopics, versions 2 to 7.
- CreatePartitions, versions 0 to 3.
- DeleteTopics, versions 1 to 6: by name, or by topic id from version 6 on.

Partitions that come and go are counted for ``controller_mutation_rate`` (KIP-599). Who goes over it is refused with
THROTTLING_QUOTA_EXCEEDED by newer versions, and held back by all.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from quorate.broker.api import Api
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_TOPIC_ID, NodeId, PartitionIndex, TopicId, TopicName
from quorate.kernel.topic_names import INTERNAL_TOPICS
from quorate.metadata.core.commands import Charge, CreatePartitions, CreateTopic, DeleteTopic
from quorate.metadata.core.decisions import CarriedOut, CreatedTopic
from quorate.metadata.core.effective_configs import shown_topic_configs, topic_entries
from quorate.metadata.core.image import MetadataImage, Topic
from quorate.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from quorate.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from quorate.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from quorate.security.api_rules import CONFIGS_OF_CREATED_TOPICS

#: Of one request, as in Apache Kafka: each is a log on several nodes.
_MAX_NEW_PARTITIONS = 10_000
_TOO_MANY_PARTITIONS = KafkaError(
    ErrorCode.POLICY_VIOLATION, f"Excessively large number of partitions per request: at most {_MAX_NEW_PARTITIONS}."
)
#: By the configs of a topic's own.
ShownConfigs = dict[frozenset[tuple[str, str]], Sequence[CreatableTopicConfigs]]
#: The first versions whose clients know THROTTLING_QUOTA_EXCEEDED.
_CREATION_STRICT_SINCE = 6
_GROWTH_STRICT_SINCE = 3
_DELETION_STRICT_SINCE = 5
ResultT = TypeVar("ResultT", CreatableTopicResult, CreatePartitionsTopicResult)


async def create_topics(
    services: Services, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    named = Counter(topic.name for topic in request.topics)
    distinct = [topic for topic in request.topics if named[topic.name] == 1]
    if _partition_count(services, distinct) > _MAX_NEW_PARTITIONS:
        results = [_result(services, topic.name, _TOO_MANY_PARTITIONS, {}) for topic in distinct]
        return CreateTopicsResponse(topics=results + _twice_named(named, CreatableTopicResult))
    charge = services.quotas.mutation_charge(context, _CREATION_STRICT_SINCE)
    outcomes = await services.metadata.submit(
        [_creation(topic, charge) for topic in distinct], validate_only=request.validate_only
    )
    answered = zip((topic.name for topic in distinct), outcomes, strict=True)
    shown: ShownConfigs = {}
    results = [_result(services, name, outcome, shown) async for name, outcome in services.turns.sliced(answered)]
    if not context.access.is_full:
        visible = context.access.allowed(CONFIGS_OF_CREATED_TOPICS, (result.name for result in results))
        results = [
            result if result.error_code or result.name in visible else _without_configs(result) for result in results
        ]
    return CreateTopicsResponse(
        throttle_time_ms=_hold_back(context, outcomes), topics=results + _twice_named(named, CreatableTopicResult)
    )


def _hold_back(context: RequestContext, outcomes: Sequence[CreatedTopic | CarriedOut | KafkaError]) -> int:
    """Read nothing more from a client that is over its rate; returns for how many milliseconds."""
    throttle_time_ms = max((getattr(outcome, "throttle_time_ms", 0) for outcome in outcomes), default=0)
    if throttle_time_ms:
        context.mute(throttle_time_ms)
    return throttle_time_ms


def _partition_count(services: Services, topics: Sequence[CreatableTopic]) -> int:
    default = services.int_config("num.partitions")
    return sum(
        len(topic.assignments) or (topic.num_partitions if topic.num_partitions > 0 else default) for topic in topics
    )


def _creation(topic: CreatableTopic, charge: Charge | msgspec.UnsetType) -> CreateTopic:
    assignments = {
        PartitionIndex(assignment.partition_index): tuple(NodeId(node) for node in assignment.broker_ids)
        for assignment in topic.assignments
    }
    return CreateTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=assignments or None,
        configs={config.name: config.value for config in topic.configs},
        charged_to=charge,
    )


def _result(
    services: Services, name: str, outcome: CreatedTopic | KafkaError, shown: ShownConfigs
) -> CreatableTopicResult:
    if isinstance(outcome, KafkaError):
        return CreatableTopicResult(name=name, error_code=outcome.code, error_message=outcome.message)
    topic = outcome.topic
    return CreatableTopicResult(
        name=name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[PartitionIndex(0)].replicas),
        configs=_configs(services, topic, shown),
    )


def _without_configs(result: CreatableTopicResult) -> CreatableTopicResult:
    """Nor what else the configs of the cluster have decided."""
    return CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_message=None,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )


def _configs(services: Services, topic: Topic, shown: ShownConfigs) -> Sequence[CreatableTopicConfigs]:
    """Most topics of a request have the same ones: these are made once."""
    own = frozenset(topic.configs.items())
    if own not in shown:
        image, view = services.metadata.image, services.view
        definitions = shown_topic_configs(topic.configs)
        entries = (next(topic_entries(image, view, topic.configs, definition)) for definition in definitions)
        shown[own] = [
            CreatableTopicConfigs(name=definition.name, value=entry.value, config_source=entry.source)
            for definition, entry in zip(definitions, entries, strict=True)
        ]
    return shown[own]


def _twice_named(named: Counter[str], kind: type[ResultT]) -> list[ResultT]:
    return [
        kind(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="The request names this topic twice.")
        for name, count in named.items()
        if count > 1
    ]


async def create_partitions(
    services: Services, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    named = Counter(topic.name for topic in request.topics)
    distinct = [topic for topic in request.topics if named[topic.name] == 1]
    outcomes: Sequence[CarriedOut | KafkaError] = [_TOO_MANY_PARTITIONS] * len(distinct)
    if _new_partitions(services, distinct) <= _MAX_NEW_PARTITIONS:
        charge = services.quotas.mutation_charge(context, _GROWTH_STRICT_SINCE)
        commands = [_command(topic, charge) for topic in distinct]
        outcomes = await services.metadata.submit(commands, validate_only=request.validate_only)
    results = [
        CreatePartitionsTopicResult(name=topic.name, error_code=outcome.code, error_message=outcome.message)
        if isinstance(outcome, KafkaError)
        else CreatePartitionsTopicResult(name=topic.name)
        for topic, outcome in zip(distinct, outcomes, strict=True)
    ]
    return CreatePartitionsResponse(
        throttle_time_ms=_hold_back(context, outcomes),
        results=results + _twice_named(named, CreatePartitionsTopicResult),
    )


def _new_partitions(services: Services, topics: Sequence[CreatePartitionsTopic]) -> int:
    known = services.metadata.image.topics
    counts = ((topic.count, known.get(TopicName(topic.name))) for topic in topics)
    return sum(max(0, count - len(topic.partitions)) for count, topic in counts if topic is not None)


def _command(topic: CreatePartitionsTopic, charge: Charge | msgspec.UnsetType) -> CreatePartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = tuple(tuple(NodeId(node) for node in a.broker_ids) for a in topic.assignments)
    return CreatePartitions(
        name=TopicName(topic.name), total_count=topic.count, assignments=assignments or None, charged_to=charge
    )


class _Wanted(msgspec.Struct, frozen=True):
    """One topic of the request: what it is called in the answer, and the id to delete or the reason not to."""

    name: str | None
    topic_id: TopicId
    error: KafkaError | None = None


async def delete_topics(
    services: Services, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    asked: Sequence[DeleteTopicState] = request.topics
    if context.api_version < 6:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    wanted = [_resolve(services.metadata.image, state) for state in asked]
    deletable = [topic for topic in wanted if topic.error is None]
    charge = services.quotas.mutation_charge(context, _DELETION_STRICT_SINCE)
    outcomes = await services.metadata.submit(
        [DeleteTopic(topic_id=topic.topic_id, charged_to=charge) for topic in deletable]
    )
    refused = {
        topic.topic_id: outcome
        for topic, outcome in zip(deletable, outcomes, strict=True)
        if isinstance(outcome, KafkaError)
    }
    return DeleteTopicsResponse(
        throttle_time_ms=_hold_back(context, outcomes),
        responses=[_deleted(topic, topic.error or refused.get(topic.topic_id)) for topic in wanted],
    )


def _resolve(image: MetadataImage, state: DeleteTopicState) -> _Wanted:
    if state.name is not None and state.topic_id != NO_TOPIC_ID:
        return _Wanted(state.name, TopicId(state.topic_id), KafkaError(ErrorCode.INVALID_REQUEST))
    if state.name is not None:
        topic = image.topics.get(TopicName(state.name))
        if topic is None:
            return _Wanted(state.name, NO_TOPIC_ID, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    else:
        topic = image.topic_by_id(TopicId(state.topic_id))
        if topic is None:
            return _Wanted(None, TopicId(state.topic_id), KafkaError(ErrorCode.UNKNOWN_TOPIC_ID))
    if topic.name in INTERNAL_TOPICS:
        error = KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is internal and cannot be deleted.")
        return _Wanted(topic.name, topic.topic_id, error)
    return _Wanted(topic.name, topic.topic_id)


def _deleted(topic: _Wanted, error: KafkaError | None) -> DeletableTopicResult:
    if error is None:
        return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
    return DeletableTopicResult(
        name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=error.message
    )


CREATE_TOPICS = Api(
    request=CreateTopicsRequest, min_version=2, max_version=7, handle=create_topics, max_elements=100_000
)
CREATE_PARTITIONS = Api(
    request=CreatePartitionsRequest, min_version=0, max_version=3, handle=create_partitions, max_elements=100_000
)
DELETE_TOPICS = Api(
    request=DeleteTopicsRequest,
    min_version=1,
    max_version=6,
    handle=delete_topics,
    parts=(
        Parts(of=("topics",), into=("responses",), distinct_by=("name", "topic_id")),
        Parts(of=("topic_names",), into=("responses",), distinct_by=()),
    ),
)
