"""CreateTopics, versions 2 to 7."""

from collections import Counter
from collections.abc import Sequence

from quorate.broker.api import Api, HandlerResult, RequestContext
from quorate.broker.node import Node
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId, PartitionIndex
from quorate.metadata.commands import CreateTopic
from quorate.metadata.decisions import Answer
from quorate.metadata.effective_configs import shown_topic_configs, topic_entries
from quorate.metadata.image import Topic
from quorate.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


def handle(node: Node, context: RequestContext, request: CreateTopicsRequest) -> HandlerResult:
    return _create(node, request)


async def _create(node: Node, request: CreateTopicsRequest) -> CreateTopicsResponse:
    named = Counter(topic.name for topic in request.topics)
    distinct = [topic for topic in request.topics if named[topic.name] == 1]
    outcomes = await node.metadata.submit([_command(topic) for topic in distinct], validate_only=request.validate_only)
    results = [_result(node, topic.name, outcome) for topic, outcome in zip(distinct, outcomes, strict=True)]
    return CreateTopicsResponse(topics=results + _twice_named(named))


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


def _result(node: Node, name: str, outcome: Answer | KafkaError) -> CreatableTopicResult:
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
        configs=_configs(node, topic),
    )


def _configs(node: Node, topic: Topic) -> Sequence[CreatableTopicConfigs]:
    shown = shown_topic_configs(topic.configs)
    entries = (next(topic_entries(node.metadata.image, node.view, topic.configs, definition)) for definition in shown)
    return [
        CreatableTopicConfigs(name=definition.name, value=entry.value, config_source=entry.source)
        for definition, entry in zip(shown, entries, strict=True)
    ]


def _twice_named(named: Counter[str]) -> list[CreatableTopicResult]:
    return [
        CreatableTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="The request names this topic twice."
        )
        for name, count in named.items()
        if count > 1
    ]


API = Api(request=CreateTopicsRequest, min_version=2, max_version=7, handle=handle)
