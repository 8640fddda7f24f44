"""What a Produce request is told of each of its partitions."""

from collections.abc import Sequence

from quorate.broker.leader_hints import leader_hint
from quorate.broker.services import Services
from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import TopicId
from quorate.protocol.messages.produce import LeaderIdAndEpoch, PartitionProduceResponse, TopicProduceData
from quorate.storage.appending import AppendInfo

_HINTS_FROM = 10
NO_HINT = PartitionProduceResponse().current_leader


def accepted(index: int, info: AppendInfo) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=info.base_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )


def refused(
    services: Services, api_version: int, topic: TopicProduceData, index: int, error: KafkaError
) -> PartitionProduceResponse:
    hint = NO_HINT
    if api_version >= _HINTS_FROM:
        image = services.metadata.image
        name = topic.name or image.topic_names.get(TopicId(topic.topic_id), "")
        leader = leader_hint(image, name, index, error.code)
        if leader is not None:
            hint = LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.leader_epoch)
    return PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=-1, error_message=error.message, current_leader=hint
    )


def leaders_named_in(answers: Sequence[PartitionProduceResponse]) -> list[int]:
    if len(answers) == 1 and answers[0].current_leader is NO_HINT:
        return []  # As nearly always.
    return [answer.current_leader.leader_id for answer in answers if answer.current_leader is not NO_HINT]
