"""CreateTopics, versions 2 to 7."""

from collections import Counter
from collections.abc import Sequence

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId, PartitionIndex
from quorate.metadata.core.commands import CreateTopic
from quorate.metadata.core.decisions import Answer
from quorate.metadata.core.effective_configs import shown_topic_configs, topic_entries
from quorate.metadata.core.image import Topic
from quorate.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

#: Of one request, as in Apache Kafka: each is a log on several nodes.
MAX_NEW_PARTITIONS = 10_000
TOO_MANY_PARTITIONS = KafkaError(
    ErrorCode.POLICY_VIOLATION, f"Excessively large number of partitions per request: at most {MAX_NEW_PARTITIONS}."
)
#: By the configs of a topic's own.
ShownConfigs = dict[frozenset[tuple[str, str]], Sequence[CreatableTopicConfigs]]


def handle(services: Services, context: RequestContext, request: CreateTopicsRequest) -> HandlerResult:
    return _create(services, request)


async def _create(services: Services, request: CreateTopicsRequest) -> CreateTopicsResponse:
    named = Counter(topic.name for topic in request.topics)
    distinct = [topic for topic in request.topics if named[topic.name] == 1]
    if _partition_count(services, distinct) > MAX_NEW_PARTITIONS:
        results = [_result(services, topic.name, TOO_MANY_PARTITIONS, {}) for topic in distinct]
        return CreateTopicsResponse(topics=results + _twice_named(named))
    outcomes = await services.metadata.submit(
        [_command(topic) for topic in distinct], validate_only=request.validate_only
    )
    answered = zip((topic.name for topic in distinct), outcomes, strict=True)
    shown: ShownConfigs = {}
    results = [_result(services, name, outcome, shown) async for name, outcome in services.turns.sliced(answered)]
    return CreateTopicsResponse(topics=results + _twice_named(named))


def _partition_count(services: Services, topics: Sequence[CreatableTopic]) -> int:
    default = services.int_config("num.partitions")
    return sum(
        len(topic.assignments) or (topic.num_partitions if topic.num_partitions > 0 else default) for topic in topics
    )


def _command(topic: CreatableTopic) -> CreateTopic:
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
    )


def _result(services: Services, name: str, outcome: Answer | KafkaError, shown: ShownConfigs) -> CreatableTopicResult:
    if isinstance(outcome, KafkaError):
        return CreatableTopicResult(name=name, error_code=outcome.code, error_message=outcome.message)
    topic = outcome.topic
    assert topic is not None
    return CreatableTopicResult(
        name=name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[PartitionIndex(0)].replicas),
        configs=_configs(services, topic, shown),
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


def _twice_named(named: Counter[str]) -> list[CreatableTopicResult]:
    return [
        CreatableTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="The request names this topic twice."
        )
        for name, count in named.items()
        if count > 1
    ]


API = Api(request=CreateTopicsRequest, min_version=2, max_version=7, handle=handle, max_elements=100_000)
