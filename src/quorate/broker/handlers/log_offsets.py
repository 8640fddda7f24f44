"""The offsets of a partition's log, as its leader has them.

- ListOffsets, versions 1 to 10: earliest, latest, by timestamp and at the largest timestamp. With ``read_committed``
  the latest offset is the last stable one, and nothing behind it is found. A time is looked up by a worker, as batches
  have to be opened for it; one that expands beyond what its topic takes is found as a whole, by its first offset and
  its highest time. Gap: there is no tiered storage, so the earliest local offset is the earliest, and no offset is the
  latest tiered one.
- OffsetForLeaderEpoch, versions 2 to 4: where the log of an epoch ends (KIP-101, KIP-279, KIP-320).
- DeleteRecords, versions 0 to 2: moves the start of a log forward, up to the high watermark at most.
"""

import asyncio

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, PartitionIndex, TopicName
from quorate.kernel.topic_names import INTERNAL_TOPICS
from quorate.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from quorate.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from quorate.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from quorate.records.record import NO_TIMESTAMP
from quorate.replication.integrity.sound_reads import when_found_sound
from quorate.replication.leading import Leading, require_leading
from quorate.replication.partition import Partition
from quorate.storage.timestamps import TimeProbe, TimestampedOffset

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


def list_offsets(services: Services, context: RequestContext, request: ListOffsetsRequest) -> HandlerResult:
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
        lookup = _TimeLookup(services, partition, context.deadline_s)
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


class _TimeLookup:
    """Which offset belongs to a time. The log says where to look; a worker looks there, one batch at a time.

    What it costs was chosen by whoever wrote the records, so the loop does nothing of it but the search of the indexes,
    in slices.
    """

    def __init__(self, services: Services, partition: Partition, deadline_s: float | None) -> None:
        """From the deadline on, in the loop's time, what is not found yet is given up."""
        self._services = services
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._deadline_s = deadline_s

    async def find(self, timestamp_ms: int | None) -> TimestampedOffset | None:
        """The first record at or after the time, or without one the first that carries the highest of the log.

        Raises NOT_LEADER_OR_FOLLOWER where the lead was lost meanwhile: nothing that was read counts then.
        """
        wanted = await self._highest() if timestamp_ms is None else timestamp_ms
        if wanted == NO_TIMESTAMP:
            return None
        try:
            found = await self._search(wanted)
        except (KafkaError, OSError) as error:
            self._require_same_leader_epoch()
            if isinstance(error, OSError):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            raise
        self._require_same_leader_epoch()
        return found

    async def _highest(self) -> int:
        highest = NO_TIMESTAMP
        async for timestamp_ms in self._services.turns.sliced(self._partition.log.highest_timestamps()):
            highest = max(highest, timestamp_ms)
        return highest

    async def _search(self, timestamp_ms: int) -> TimestampedOffset | None:
        async for probe in self._services.turns.sliced(self._partition.log.probes_for_timestamp(timestamp_ms)):
            found = None if probe is None else await self._look(probe)
            if found is not None:
                return found
        return None

    async def _look(self, probe: TimeProbe) -> TimestampedOffset | None:
        found = None
        while found is None and not probe.is_over:
            if self._deadline_s is not None and asyncio.get_running_loop().time() >= self._deadline_s:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            found = await self._services.record_opening.step(probe)
        return found

    def _require_same_leader_epoch(self) -> None:
        partition = self._partition
        require_leading(partition)
        if partition.leader_epoch != self._leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def offset_for_leader_epoch(
    services: Services, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_epoch_end(services, TopicName(topic.topic), wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _epoch_end(services: Services, topic: TopicName, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = services.partitions.led(topic, PartitionIndex(wanted.partition))
        partition.check_leader_epoch(wanted.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=wanted.partition, error_code=error.code)
    epoch, end_offset = partition.log.end_offset_for_epoch(LeaderEpoch(wanted.leader_epoch))
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)


def delete_records(services: Services, context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete(services, TopicName(topic.name), wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(services: Services, topic: TopicName, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = services.partitions.led(topic, PartitionIndex(wanted.partition_index))
        if not partition.log.config.deletes:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        low_watermark = partition.delete_records_before(Offset(wanted.offset))
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=wanted.partition_index, low_watermark=-1, error_code=error.code
        )
    return DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=low_watermark)


LIST_OFFSETS = Api(
    request=ListOffsetsRequest,
    min_version=1,
    max_version=10,
    handle=list_offsets,
    parts=(Parts(of=("topics", "partitions"), into=("topics", "partitions")),),
)
OFFSET_FOR_LEADER_EPOCH = Api(
    request=OffsetForLeaderEpochRequest,
    min_version=2,
    max_version=4,
    handle=offset_for_leader_epoch,
    parts=(Parts(of=("topics", "partitions"), into=("topics", "partitions")),),
)
DELETE_RECORDS = Api(
    request=DeleteRecordsRequest,
    min_version=0,
    max_version=2,
    handle=delete_records,
    parts=(Parts(of=("topics", "partitions"), into=("topics", "partitions")),),
)
