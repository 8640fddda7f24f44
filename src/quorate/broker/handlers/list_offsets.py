"""ListOffsets, versions 1 to 10: earliest, latest, by timestamp and at the largest timestamp.

With ``read_committed`` the latest offset is the last stable one, and nothing behind it is found.

Gap: there is no tiered storage, so the earliest local offset is the earliest, and no offset is the latest tiered one.
"""

from quorate.broker.api import Api, HandlerResult, RequestContext
from quorate.broker.integrity.sound_reads import when_sound
from quorate.broker.node import Node
from quorate.broker.partition import Partition
from quorate.broker.request_parts import Parts
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_LEADER_EPOCH, PartitionIndex, TopicName
from quorate.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from quorate.storage.reading import DamagedRecords, UncheckedSegment

_READ_COMMITTED = 1
_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4
_LATEST_TIERED = -5
#: The version in which each special timestamp came.
_SPECIAL_FROM = {_LATEST: 0, _EARLIEST: 0, _MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9}
_LEADER_EPOCH_FROM = 4
_OFFSET_NOT_AVAILABLE_FROM = 5

#: Offset, timestamp and leader epoch; -1 for what does not exist.
Found = tuple[int, int, int]
_NOTHING: Found = (-1, -1, NO_LEADER_EPOCH)


def handle(node: Node, context: RequestContext, request: ListOffsetsRequest) -> HandlerResult:
    try:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        _answer(node, context, topic.name, wanted, request.isolation_level)
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
    except (UncheckedSegment, DamagedRecords):
        return _answer_later(node, context, request)


async def _answer_later(node: Node, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Segments that a time is looked up in are being checked, or repaired."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    await _answer_when_sound(node, context, topic.name, wanted, request.isolation_level)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _answer_when_sound(
    node: Node, context: RequestContext, topic: str, wanted: ListOffsetsPartition, isolation_level: int
) -> ListOffsetsPartitionResponse:
    try:
        partition = node.partitions.led(TopicName(topic), PartitionIndex(wanted.partition_index))
        return await when_sound(partition, lambda: _answer(node, context, topic, wanted, isolation_level))
    except KafkaError as error:
        return _refusal(context, wanted, error)


def _answer(
    node: Node, context: RequestContext, topic: str, wanted: ListOffsetsPartition, isolation_level: int
) -> ListOffsetsPartitionResponse:
    """Raises where a segment has to be checked first."""
    try:
        partition = node.partitions.led(TopicName(topic), PartitionIndex(wanted.partition_index))
        partition.check_leader_epoch(wanted.current_leader_epoch)
        if wanted.timestamp < 0 and _SPECIAL_FROM.get(wanted.timestamp, 2**15) > context.api_version:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        offset, timestamp, leader_epoch = _find(partition, wanted.timestamp, isolation_level)
    except (UncheckedSegment, DamagedRecords):
        raise
    except KafkaError as error:
        return _refusal(context, wanted, error)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        offset=offset,
        timestamp=timestamp,
        leader_epoch=leader_epoch if context.api_version >= _LEADER_EPOCH_FROM else NO_LEADER_EPOCH,
    )


def _refusal(context: RequestContext, wanted: ListOffsetsPartition, error: KafkaError) -> ListOffsetsPartitionResponse:
    code = error.code
    if code is ErrorCode.OFFSET_NOT_AVAILABLE and context.api_version < _OFFSET_NOT_AVAILABLE_FROM:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)


def _find(partition: Partition, timestamp: int, isolation_level: int) -> Found:
    log = partition.log
    end_offset = partition.last_stable_offset if isolation_level == _READ_COMMITTED else partition.high_watermark
    match timestamp:
        case -1:
            _check_caught_up(partition)
            return end_offset, -1, partition.leader_epoch
        case -2 | -4:
            return log.log_start_offset, -1, log.epoch_at(log.log_start_offset)
        case -5:
            return _NOTHING
        case -3:
            found = log.offset_of_max_timestamp()
        case _:
            found = log.offset_for_timestamp(timestamp)
    if found is not None and found[0] < end_offset:
        return found
    _check_caught_up(partition)
    return _NOTHING


def _check_caught_up(partition: Partition) -> None:
    """A new leader may not know yet what its predecessor has committed and shown (KIP-207)."""
    if partition.leading is not None and not partition.leading.has_caught_up_with_its_epoch:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)


API = Api(
    request=ListOffsetsRequest,
    min_version=1,
    max_version=10,
    handle=handle,
    parts=(Parts(of=("topics", "partitions"), into=("topics", "partitions")),),
)
