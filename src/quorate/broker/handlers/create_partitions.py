"""CreatePartitions, versions 0 to 3."""

from collections import Counter
from collections.abc import Sequence

from quorate.broker.api import Api, HandlerResult
from quorate.broker.handlers.create_topics import MAX_NEW_PARTITIONS, TOO_MANY_PARTITIONS
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId, TopicName
from quorate.metadata.core.commands import CreatePartitions
from quorate.metadata.core.decisions import Answer
from quorate.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def handle(services: Services, context: RequestContext, request: CreatePartitionsRequest) -> HandlerResult:
    return _create(services, request)


async def _create(services: Services, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    named = Counter(topic.name for topic in request.topics)
    distinct = [topic for topic in request.topics if named[topic.name] == 1]
    outcomes: Sequence[Answer | KafkaError] = [TOO_MANY_PARTITIONS] * len(distinct)
    if _new_partitions(services, distinct) <= MAX_NEW_PARTITIONS:
        commands = [_command(topic) for topic in distinct]
        outcomes = await services.metadata.submit(commands, validate_only=request.validate_only)
    results = [
        CreatePartitionsTopicResult(name=topic.name, error_code=outcome.code, error_message=outcome.message)
        if isinstance(outcome, KafkaError)
        else CreatePartitionsTopicResult(name=topic.name)
        for topic, outcome in zip(distinct, outcomes, strict=True)
    ]
    twice = [
        CreatePartitionsTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="The request names this topic twice."
        )
        for name, count in named.items()
        if count > 1
    ]
    return CreatePartitionsResponse(results=results + twice)


def _new_partitions(services: Services, topics: Sequence[CreatePartitionsTopic]) -> int:
    known = services.metadata.image.topics
    counts = ((topic.count, known.get(TopicName(topic.name))) for topic in topics)
    return sum(max(0, count - len(topic.partitions)) for count, topic in counts if topic is not None)


def _command(topic: CreatePartitionsTopic) -> CreatePartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = tuple(tuple(NodeId(node) for node in a.broker_ids) for a in topic.assignments)
    return CreatePartitions(name=TopicName(topic.name), total_count=topic.count, assignments=assignments or None)


API = Api(request=CreatePartitionsRequest, min_version=0, max_version=3, handle=handle, max_elements=100_000)
