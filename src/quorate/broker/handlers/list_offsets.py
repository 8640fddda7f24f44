"""ListOffsets, versions 1 to 10: earliest, latest, by timestamp and at the largest timestamp.

With ``read_committed`` the latest offset is the last stable one, and nothing behind it is found. A time is looked up by
a worker, as batches have to be opened for it; one that expands beyond what its topic takes is found as a whole, by its
first offset and its highest time.

Gap: there is no tiered storage, so the earliest local offset is the earliest, and no offset is the latest tiered one.
"""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.broker.time_lookup import TimeLookup
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_LEADER_EPOCH, Offset, PartitionIndex, TopicName
from quorate.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from quorate.replication.integrity.sound_reads import when_found_sound
from quorate.replication.leading import Leading
from quorate.replication.partition import Partition

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


def handle(services: Services, context: RequestContext, request: ListOffsetsRequest) -> HandlerResult:
    if any(_looks_up(wanted) for topic in request.topics for wanted in topic.partitions):
        return _answer_later(services, context, request)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _answer(services, context, topic.name, wanted, request.isolation_level)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _looks_up(wanted: ListOffsetsPartition) -> bool:
    return wanted.timestamp >= 0 or wanted.timestamp == _MAX_TIMESTAMP


async def _answer_later(
    services: Services, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    await _answer_looked_up(services, context, topic.name, wanted, request.isolation_level)
                    if _looks_up(wanted)
                    else _answer(services, context, topic.name, wanted, request.isolation_level)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _answer(
    services: Services, context: RequestContext, topic: str, wanted: ListOffsetsPartition, isolation_level: int
) -> ListOffsetsPartitionResponse:
    try:
        partition = _partition(services, context, topic, wanted)
        return _found(context, wanted, _find(partition, wanted.timestamp, isolation_level))
    except KafkaError as error:
        return _refusal(context, wanted, error)


async def _answer_looked_up(
    services: Services, context: RequestContext, topic: str, wanted: ListOffsetsPartition, isolation_level: int
) -> ListOffsetsPartitionResponse:
    try:
        partition = _partition(services, context, topic, wanted)
        lookup = TimeLookup(services, partition, context.deadline_s)
        timestamp = None if wanted.timestamp == _MAX_TIMESTAMP else wanted.timestamp
        found = await when_found_sound(partition, lambda: lookup.find(timestamp))
        if found is None or found.offset >= _end_offset(partition, isolation_level):
            _check_caught_up(partition)
            found = None
        return _found(context, wanted, found or _NOTHING)
    except KafkaError as error:
        return _refusal(context, wanted, error)


def _partition(services: Services, context: RequestContext, topic: str, wanted: ListOffsetsPartition) -> Partition:
    partition = services.partitions.led(TopicName(topic), PartitionIndex(wanted.partition_index))
    partition.check_leader_epoch(wanted.current_leader_epoch)
    if wanted.timestamp < 0 and _SPECIAL_FROM.get(wanted.timestamp, 2**15) > context.api_version:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return partition


def _found(context: RequestContext, wanted: ListOffsetsPartition, found: Found) -> ListOffsetsPartitionResponse:
    offset, timestamp, leader_epoch = found
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
    match timestamp:
        case -1:
            _check_caught_up(partition)
            return _end_offset(partition, isolation_level), -1, partition.leader_epoch
        case -2 | -4:
            return log.log_start_offset, -1, log.epoch_at(log.log_start_offset)
        case _:
            return _NOTHING


def _end_offset(partition: Partition, isolation_level: int) -> Offset:
    return partition.last_stable_offset if isolation_level == _READ_COMMITTED else partition.high_watermark


def _check_caught_up(partition: Partition) -> None:
    """A new leader may not know yet what its predecessor has committed and shown (KIP-207)."""
    role = partition.role
    if isinstance(role, Leading) and not role.has_caught_up_with_its_epoch:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)


API = Api(
    request=ListOffsetsRequest,
    min_version=1,
    max_version=10,
    handle=handle,
    parts=(Parts(of=("topics", "partitions"), into=("topics", "partitions")),),
)
