"""DeleteTopics, versions 1 to 6: by name, or by topic id from version 6 on."""

from collections.abc import Sequence

import msgspec

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_TOPIC_ID, TopicId, TopicName
from quorate.kernel.topic_names import INTERNAL_TOPICS
from quorate.metadata.core.commands import DeleteTopic
from quorate.metadata.core.image import MetadataImage
from quorate.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


class _Wanted(msgspec.Struct, frozen=True):
    """One topic of the request: what it is called in the answer, and the id to delete or the reason not to."""

    name: str | None
    topic_id: TopicId
    error: KafkaError | None = None


def handle(services: Services, context: RequestContext, request: DeleteTopicsRequest) -> HandlerResult:
    asked: Sequence[DeleteTopicState] = request.topics
    if context.api_version < 6:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    return _delete(services, [_resolve(services.metadata.image, state) for state in asked])


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


async def _delete(services: Services, wanted: Sequence[_Wanted]) -> DeleteTopicsResponse:
    deletable = [topic for topic in wanted if topic.error is None]
    outcomes = await services.metadata.submit([DeleteTopic(topic_id=topic.topic_id) for topic in deletable])
    refused = {
        topic.topic_id: outcome
        for topic, outcome in zip(deletable, outcomes, strict=True)
        if isinstance(outcome, KafkaError)
    }
    return DeleteTopicsResponse(
        responses=[_result(topic, topic.error or refused.get(topic.topic_id)) for topic in wanted]
    )


def _result(topic: _Wanted, error: KafkaError | None) -> DeletableTopicResult:
    if error is None:
        return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
    return DeletableTopicResult(
        name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=error.message
    )


API = Api(
    request=DeleteTopicsRequest,
    min_version=1,
    max_version=6,
    handle=handle,
    parts=(
        Parts(of=("topics",), into=("responses",), distinct_by=("name", "topic_id")),
        Parts(of=("topic_names",), into=("responses",), distinct_by=()),
    ),
)
