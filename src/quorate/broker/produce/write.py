"""What a Produce request has for each partition, written in its order, and what is answered for it.

It is written in one go where it can be. It stops before a batch whose records a worker has to open, and after a slice
of many partitions; then it goes on with copies, as the connection reads its next bytes into the memory of the frame.
"""

from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from quorate.broker.leader_hints import leader_hint
from quorate.broker.produce.doubted_refusals import DoubtedRefusal, is_doubted
from quorate.broker.produce.pending import UncommittedWrite
from quorate.broker.produce.record_opening import SMALL_RECORDS, ToOpen, open_small
from quorate.broker.produce.restored_batches import check_restored
from quorate.broker.produce.transaction import TransactionOfRequest, with_own_memory
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset, PartitionIndex, TopicId, TopicName
from quorate.kernel.topic_names import INTERNAL_TOPICS
from quorate.kernel.turns import SLICE_ELEMENTS
from quorate.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from quorate.records.batch import BatchHeader, is_transactional, read_header
from quorate.records.validation import validate_produced
from quorate.replication.partition import Partition
from quorate.storage.appending import AppendInfo

_BATCHES_FROM = 3
_HINTS_FROM = 10
_TOPIC_IDS_FROM = 13
NO_HINT = PartitionProduceResponse().current_leader


class NextSlice(msgspec.Struct, frozen=True):
    """There are more partitions than one turn of the loop should write to."""


_NEXT_SLICE = NextSlice()
#: Why a request is not written yet.
Pause = ToOpen | NextSlice


class ProduceWrite:
    def __init__(
        self, services: Services, api_version: int, request: ProduceRequest, transaction: TransactionOfRequest | None
    ) -> None:
        self._services = services
        self._api_version = api_version
        self._transaction = transaction
        self._acks_all = request.acks == -1
        self._refusal = _refusal(api_version, request)
        self._left = [(topic, data) for topic in request.topic_data for data in topic.partition_data]
        self._left.reverse()
        #: What a worker has made of the batch that is next, or found wrong with it.
        self._opened: memoryview | KafkaError | None = None
        self._room_for_records = SMALL_RECORDS
        #: By position; which of them hold only once they are committed, and which only from the true leader.
        self.answers: list[PartitionProduceResponse] = []
        self.uncommitted: list[UncommittedWrite] = []
        self.doubted: list[DoubtedRefusal] = []

    def proceed(self) -> Pause | None:
        """Write on, until all is written or something has to be waited for."""
        now_ms = self._services.clock.now_ms()
        self._room_for_records = SMALL_RECORDS
        room = SLICE_ELEMENTS
        left = self._left
        while left:
            if not room:
                return _NEXT_SLICE
            room -= 1
            to_open = self._write(*left[-1], now_ms)
            if to_open is not None:
                return to_open
            self._opened = None
            left.pop()
        return None

    def finish(self) -> Coroutine[Any, Any, None]:
        """Write the rest, with all the waiting that it takes. What is left is copied now, not when that first runs."""
        self._left = [(topic, with_own_memory(data)) for topic, data in self._left]
        return self._finish()

    async def _finish(self) -> None:
        while (pause := self.proceed()) is not None:
            if isinstance(pause, NextSlice):
                await self._services.turns.next()
                continue
            try:
                self._opened = await self._services.record_opening.open(pause)
            except KafkaError as error:
                self._opened = error

    def _write(self, topic: TopicProduceData, data: PartitionProduceData, now_ms: int) -> ToOpen | None:
        """Append one batch, or say why not; returns it where it has to be opened first."""
        partition: Partition | None = None
        transaction = self._transaction
        try:
            if self._refusal is not None:
                raise self._refusal
            partition = find_led(self._services, self._api_version, topic, data.index)
            checked = self._checked(partition, data, now_ms)
            if isinstance(checked, ToOpen):
                return checked
            batch, header = checked
            admit = None
            if transaction is not None:
                admit = partial(transaction.require_admitted, partition, batch)
            elif is_transactional(batch):
                raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "A transaction without its id.")
            info = partition.append(batch, now_ms, acks_all=self._acks_all, header=header, admit=admit)
            if transaction is not None:
                transaction.appended(partition)
        except KafkaError as error:
            self._refused(topic, data, partition, error)
            return None
        if partition.high_watermark <= info.last_offset:
            self.uncommitted.append((len(self.answers), partition, Offset(info.last_offset + 1)))
        self.answers.append(_accepted(data.index, info))
        return None

    def _checked(
        self, partition: Partition, data: PartitionProduceData, now_ms: int
    ) -> tuple[memoryview, BatchHeader | None] | ToOpen:
        """The batch, proven to be one that may be stored as it is, and where it has been read, its header."""
        if self._opened is not None:
            if isinstance(self._opened, KafkaError):
                raise self._opened
            return self._opened, None
        records, settings = data.records, partition.settings
        if not isinstance(records, memoryview) or not records:
            raise KafkaError(ErrorCode.INVALID_RECORD, "The request has no record batch for this partition.")
        header: BatchHeader | None = None
        if settings.is_being_restored:
            check_restored(settings, records, self._api_version)
        else:
            header = validate_produced(records, produce_version=self._api_version)
        if settings.takes_any_batch:
            return records, header
        rules = settings.opening_rules(now_ms)
        if not rules.apply_to(read_header(records)):
            return records, header
        if len(records) > settings.log.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch of {len(records)} bytes, where {settings.log.max_message_bytes} are allowed",
            )
        opened = open_small(records, rules, self._room_for_records)
        if opened is None:
            return ToOpen(records, rules)
        self._room_for_records -= read_header(records).record_count
        return opened, None

    def _refused(
        self, topic: TopicProduceData, data: PartitionProduceData, partition: Partition | None, error: KafkaError
    ) -> None:
        if partition is None and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            _put_off_what_follows(self._services, self._api_version, topic, data)
        if partition is not None and is_doubted(error):
            assert isinstance(data.records, memoryview)  # It was looked into.
            self.doubted.append(DoubtedRefusal.of(len(self.answers), partition, data.records))
        self.answers.append(refused(self._services, self._api_version, topic, data.index, error))


def _refusal(api_version: int, request: ProduceRequest) -> KafkaError | None:
    """What is wrong with the request as a whole, and so the answer to each of its partitions."""
    if api_version < _BATCHES_FROM:
        return KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if request.acks not in (-1, 0, 1):
        return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    return None


def _put_off_what_follows(
    services: Services, api_version: int, topic: TopicProduceData, data: PartitionProduceData
) -> None:
    """Where this node has a replica, and so may get to know that it leads before the producer's next batch comes."""
    if isinstance(data.records, memoryview):
        with suppress(KafkaError):
            _replica(services, api_version, topic, data.index).refuse_as_follower(data.records)


def _replica(services: Services, api_version: int, topic: TopicProduceData, index: int) -> Partition:
    if api_version >= _TOPIC_IDS_FROM:
        return services.partitions.replica_by_id(topic.topic_id, index)
    return services.partitions.replica(TopicName(topic.name), PartitionIndex(index))


def find_led(services: Services, api_version: int, topic: TopicProduceData, index: int) -> Partition:
    """The partition that a client may write to here."""
    partition = _replica(services, api_version, topic, index)
    if partition.leading is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.identity.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "Clients cannot write to internal topics.")
    return partition


def _accepted(index: int, info: AppendInfo) -> PartitionProduceResponse:
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
    return [answer.current_leader.leader_id for answer in answers if answer.current_leader is not NO_HINT]
