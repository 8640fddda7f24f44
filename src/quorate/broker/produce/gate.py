"""The gate of Produce: every rule that may refuse a batch, in the order in which they are asked.

The request:

1.  It is of version 3 or later (UNSUPPORTED_VERSION), with acks of -1, 0 or 1 (INVALID_REQUIRED_ACKS).
2.  This node has a replica of the partition that works, and leads it (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,
    KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER), and clients may write there (INVALID_TOPIC_EXCEPTION).

The batch by itself:

3.  There is exactly one, sound and in format 2, with a codec of its version, from a client and not a marker, and, from
    an idempotent producer, numbered (INVALID_RECORD, CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE, INVALID_TIMESTAMP).
4.  While the topic is restored with its offsets, it is the restore's (POLICY_VIOLATION), numbered by its offset.
5.  Its records are what the topic asks of each: keys where it is compacted, not too old, no more bytes than allowed
    once they are opened (INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE). It is stored in the topic's codec.
6.  A transactional batch comes with its transactional id (TRANSACTIONAL_ID_AUTHORIZATION_FAILED).

The batch among those of its producer, and of others; nothing comes between these rules and the append:

7.  No earlier batch of the producer was refused that is still to be sent again: what comes behind it is deferred, and
    gets the same error (``replication.producers``).
8.  Its transaction is open here, or its coordinator has confirmed it and nothing has ended it since (INVALID_TXN_STATE
    and what the coordinator says; ``transaction``).
9.  The partition takes writes: it has not failed, the disk has room (KAFKA_STORAGE_ERROR) and, for ``acks=all``,
    enough replicas are in sync (NOT_ENOUGH_REPLICAS).
10. Soon after a change of leaders, a producer that is not known starts at sequence 0: its earlier batches may still
    have to come (OUT_OF_ORDER_SEQUENCE_NUMBER; ``sequence_gaps``).
11. It follows what the log has: the producer's epoch and sequence, with a repeat answered as the first time, and while
    the topic is restored the end of the log (INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE).
    It is not too large, nor of a time too far away, and can be written (MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
    INVALID_TIMESTAMP, KAFKA_STORAGE_ERROR; ``storage.appending``).

A batch that 2 or one of 8 to 11 refuses for a reason of the moment defers what the producer has sent behind it. A gap
in the sequence is told only when the quorum has confirmed that this node still leads.

All is written in one go where it can be. It stops before a batch whose records a worker has to open, and after a slice
of many partitions; then it goes on with copies, as the connection reads its next bytes into the memory of the frame.
"""

from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import msgspec

from quorate.broker.produce.answers import accepted, refused
from quorate.broker.produce.pending import UncommittedWrite
from quorate.broker.produce.record_opening import SMALL_RECORDS, ToOpen, open_small
from quorate.broker.produce.sequence_gaps import SequenceGap, is_gap
from quorate.broker.produce.transaction import TransactionOfRequest, with_own_memory
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset, PartitionIndex, TopicName
from quorate.kernel.topic_names import INTERNAL_TOPICS
from quorate.kernel.turns import SLICE_ELEMENTS
from quorate.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from quorate.records.batch import TRANSACTIONAL_MASK, BatchHeader, read_header
from quorate.records.errors import InvalidRecord
from quorate.records.validation import validate_produced
from quorate.replication.leading import Leading
from quorate.replication.partition import Partition
from quorate.replication.partition_settings import PartitionSettings
from quorate.storage.appending import AppendInfo

_BATCHES_FROM = 3
_ACKS = (-1, 0, 1)
_TOPIC_IDS_FROM = 13
_SEQUENCE_SPAN = 2**31


class ProducedBatch(msgspec.Struct, frozen=True, gc=False):
    """What a producer sent for one partition, found sound. Its header is read once."""

    view: memoryview
    header: BatchHeader


class NextSlice(msgspec.Struct, frozen=True):
    """There are more partitions than one turn of the loop should write to."""


_NEXT_SLICE = NextSlice()
#: Why a request is not written yet.
Pause = ToOpen | NextSlice


class ProduceGate:
    """What one request has for each partition, judged and written in its order, and what is answered for it."""

    def __init__(
        self, services: Services, api_version: int, request: ProduceRequest, transaction: TransactionOfRequest | None
    ) -> None:
        self._services = services
        self._api_version = api_version
        self._transaction = transaction
        self._acks_all = request.acks == -1
        self._refusal = None if api_version >= _BATCHES_FROM and request.acks in _ACKS else _refusal(api_version)
        self._left: list[tuple[TopicProduceData, PartitionProduceData]] = []
        for topic in reversed(request.topic_data):
            for data in reversed(topic.partition_data):
                self._left.append((topic, data))
        #: What a worker has made of the batch that is next, or found wrong with it.
        self._opened: memoryview | KafkaError | None = None
        self._room_for_records = SMALL_RECORDS
        #: By position; which of them hold only once they are committed, and which only from the true leader.
        self.answers: list[PartitionProduceResponse] = []
        self.uncommitted: list[UncommittedWrite] = []
        self.gaps: list[SequenceGap] = []

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
                self._opened = error.again()

    def _write(self, topic: TopicProduceData, data: PartitionProduceData, now_ms: int) -> ToOpen | None:
        """Append one batch, or say why not; returns it where it has to be opened first."""
        leading: Leading | None = None
        batch: ProducedBatch | None = None
        try:
            if self._refusal is not None:
                raise self._refusal.again()
            leading = find_leading(self._services, self._api_version, topic, data.index)
            settings = leading.partition.settings
            if self._opened is not None:
                batch = _opened_batch(self._opened)
            else:
                batch = sound_batch(settings, data.records, self._api_version)
                if not settings.takes_any_batch:
                    opened = self._open(batch, settings, now_ms)
                    if isinstance(opened, ToOpen):
                        return opened
                    batch = opened
            info = append(leading, batch, now_ms, acks_all=self._acks_all, transaction=self._transaction)
        except KafkaError as error:
            self._refused(topic, data, leading, batch, error)
            return None
        if leading.partition.high_watermark <= info.last_offset:
            self.uncommitted.append((len(self.answers), leading.partition, Offset(info.last_offset + 1)))
        self.answers.append(accepted(data.index, info))
        return None

    def _open(self, batch: ProducedBatch, settings: PartitionSettings, now_ms: int) -> ProducedBatch | ToOpen:
        """The batch as it is to be stored."""
        rules = settings.opening_rules(now_ms)
        view, header = batch.view, batch.header
        if not rules.apply_to(header):
            return batch
        if len(view) > settings.log.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch of {len(view)} bytes, where {settings.log.max_message_bytes} are allowed",
            )
        opened = open_small(view, header, rules, self._room_for_records)
        if opened is None:
            return ToOpen(view, rules)
        self._room_for_records -= header.record_count
        return batch if opened is view else _opened_batch(opened)

    def _refused(
        self,
        topic: TopicProduceData,
        data: PartitionProduceData,
        leading: Leading | None,
        batch: ProducedBatch | None,
        error: KafkaError,
    ) -> None:
        if leading is None and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            _defer_what_follows(self._services, self._api_version, topic, data)
        if leading is not None and batch is not None and is_gap(error):
            self.gaps.append(SequenceGap.of(len(self.answers), leading, batch.header))
        self.answers.append(refused(self._services, self._api_version, topic, data.index, error))


def _refusal(api_version: int) -> KafkaError:
    """What is wrong with the request as a whole, and so the answer to each of its partitions."""
    is_old = api_version < _BATCHES_FROM
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION if is_old else ErrorCode.INVALID_REQUIRED_ACKS)


def find_leading(services: Services, api_version: int, topic: TopicProduceData, index: int) -> Leading:
    """The partition that a client may write to here."""
    partition = _replica(services, api_version, topic, index)
    role = partition.role
    if not isinstance(role, Leading):
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.identity.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "Clients cannot write to internal topics.")
    return role


def _replica(services: Services, api_version: int, topic: TopicProduceData, index: int) -> Partition:
    if api_version >= _TOPIC_IDS_FROM:
        return services.partitions.replica_by_id(topic.topic_id, index)
    return services.partitions.replica(TopicName(topic.name), PartitionIndex(index))


def _defer_what_follows(
    services: Services, api_version: int, topic: TopicProduceData, data: PartitionProduceData
) -> None:
    """Where this node has a replica, and so may get to know that it leads before the producer's next batch comes."""
    if isinstance(data.records, memoryview):
        with suppress(KafkaError):
            partition = _replica(services, api_version, topic, data.index)
            not_leading = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            partition.deferred.refused(read_header(data.records), not_leading, partition.replication.now_ms())


def sound_batch(settings: PartitionSettings, records: object, produce_version: int) -> ProducedBatch:
    """The batch that a producer sent, proven to be one."""
    if not isinstance(records, memoryview) or not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "The request has no record batch for this partition.")
    if not settings.is_being_restored:
        return ProducedBatch(records, validate_produced(records, produce_version=produce_version))
    header = validate_produced(records, produce_version=produce_version, may_have_holes=True)
    _check_restored(settings, header)
    return ProducedBatch(records, header)


def _check_restored(settings: PartitionSettings, header: BatchHeader) -> None:
    """What a topic takes while it is restored with its offsets: batches of its restore, as they are.

    They have their offsets already, with holes where the source has no record, and their offset for a sequence. No
    other producer can have the id of the restore, since ids are never given out twice. Whether the offset is the next
    one is for the log to say.
    """
    if header.producer_id != settings.restore_producer_id:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "The topic is being restored: until that is done only the restore may write."
        )
    if header.is_transactional or header.base_sequence != header.base_offset % _SEQUENCE_SPAN:
        raise InvalidRecord(f"offset {header.base_offset} with sequence {header.base_sequence} in a restored topic")


def _opened_batch(opened: memoryview | KafkaError) -> ProducedBatch:
    if isinstance(opened, KafkaError):
        raise opened.again()
    return ProducedBatch(opened, read_header(opened))


def append(
    leading: Leading,
    batch: ProducedBatch,
    now_ms: int,
    *,
    acks_all: bool,
    transaction: TransactionOfRequest | None,
) -> AppendInfo:
    """Ask rules 6 to 11, and write."""
    header = batch.header
    if transaction is None and header.attributes & TRANSACTIONAL_MASK:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "A transaction without its id.")
    partition = leading.partition
    deferred = partition.deferred
    if deferred.refusals:
        deferred.require_turn(header, partition.replication.now_ms(), partition.log.producers)
    try:
        if transaction is not None:
            transaction.require_admitted(leading, header)
        leading.require_writable(acks_all=acks_all)
        if header.base_sequence > 0:
            _require_no_earlier_batch(leading, header)
        info = leading.write(batch.view, (header,), now_ms)
    except KafkaError as error:
        deferred.refused(header, error, partition.replication.now_ms())
        partition.check_disk(error)
        raise
    if deferred.refusals:
        deferred.written(header)
    if transaction is not None:
        transaction.appended(leading)
    return info


def _require_no_earlier_batch(leading: Leading, header: BatchHeader) -> None:
    """While batches may come early, a producer that is not known has written before where it starts elsewhere."""
    if (
        header.producer_id >= 0
        and leading.partition.log.producers.get(header.producer_id) is None
        and leading.may_get_batches_early
    ):
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} is not known and sends sequence {header.base_sequence}",
        )
