"""Reading partitions for a fetch: what each gives now, and waiting until together they give enough.

A waiting fetch watches its partitions and reads again only those that changed, at the end of the loop turn in which
they did, so that many appends cause one read.
"""

import asyncio
from collections.abc import Sequence

from quorate.broker.fetch.sessions import FetchTarget
from quorate.broker.leader_hints import leader_hint
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_NODE, LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId, TopicName
from quorate.kernel.ports import Buffer, FileRegion
from quorate.kernel.turns import Turns
from quorate.metadata.core.image import MetadataImage
from quorate.protocol.messages.fetch import AbortedTransaction, EpochEndOffset, LeaderIdAndEpoch, PartitionData
from quorate.replication.following import Following
from quorate.replication.integrity.sound_reads import WAIT_S
from quorate.replication.leading import Leading
from quorate.replication.partition import Partition
from quorate.storage.reading import DamagedRecords, LogSlice, UncheckedSegment

_READ_COMMITTED = 1
_NO_RECORDS = b""
TOPIC_IDS_FROM = 13
_HINTS_FROM = 12
NO_HINT = PartitionData().current_leader
#: The default itself, by which an encoder sees at once that there is nothing to write.
_NO_DIVERGENCE = PartitionData().diverging_epoch


class PartitionReads:
    """The reads of one fetch request, in the order of its partitions."""

    def __init__(
        self,
        services: Services,
        targets: Sequence[FetchTarget],
        *,
        api_version: int,
        max_bytes: int,
        min_bytes: int,
        isolation_level: int,
        rack_id: str,
        refused: frozenset[str] = frozenset(),
        follower_error: ErrorCode | None = None,
    ) -> None:
        self._services = services
        self._targets = targets
        self._uses_topic_ids = api_version >= TOPIC_IDS_FROM
        self._gives_hints = api_version >= _HINTS_FROM
        self._rack_id = rack_id
        #: The names of topics that the client may not read.
        self._refused = refused
        #: What a client is told that plays a follower.
        self._follower_error = follower_error
        self._max_bytes = max_bytes
        self._min_bytes = min_bytes
        self._is_read_committed = isolation_level == _READ_COMMITTED
        self._positions: dict[Partition, list[int]] = {}
        self._changed: set[int] = set()
        #: Reads that met a segment which is being checked or repaired. An empty answer would look like an end.
        self._held_up: dict[int, KafkaError] = {}
        #: Of all records found so far.
        self.size_bytes = 0
        self._has_news = False
        self._wake_scheduled = False
        self._enough: asyncio.Future[None] | None = None
        self._is_reading = False
        self._timer: asyncio.TimerHandle | None = None
        self.results: list[PartitionData] = []

    def read(self) -> None:
        """All partitions, at once."""
        self.results = [self._read(position) for position in range(len(self._targets))]

    async def read_in_turns(self, turns: Turns) -> None:
        """The same for many partitions. What changes before all are read is read again at the end."""
        self._is_reading = True
        try:
            async for position in turns.sliced(range(len(self._targets))):
                self.results.append(self._read(position))
        except BaseException:
            self.unwatch()
            raise
        self._is_reading = False
        if self._changed:
            self._read_changed()

    @property
    def is_enough(self) -> bool:
        """Whether to answer now: bytes as asked, or something that the client should hear at once."""
        return not self._held_up and (self._has_news or self.size_bytes >= self._min_bytes)

    @property
    def is_held_up(self) -> bool:
        return bool(self._held_up)

    def end(self) -> None:
        """Nothing more is waited for: what could not be read in time is an error that clients try again."""
        for position, error in self._held_up.items():
            self.results[position] = self._failed(position, error)

    def wait(self, max_wait_ms: int) -> "asyncio.Future[None]":
        """Watch the partitions from this moment on; the future is done when there is enough, or the time is up."""
        self._enough = self._services.loop.create_future()
        self._enough.add_done_callback(self._end_watch)
        wait_s = max(max_wait_ms / 1000, WAIT_S) if self._held_up else max_wait_ms / 1000
        self._timer = self._services.loop.call_later(wait_s, self.stop_waiting)
        for partition in self._positions:
            partition.watch(self)
        return self._enough

    def partition_changed(self, partition: Partition) -> None:
        self._changed.update(self._positions[partition])
        if not self._wake_scheduled and not self._is_reading:
            self._wake_scheduled = True
            self._services.loop.call_soon(self._read_changed)

    def _read_changed(self) -> None:
        self._wake_scheduled = False
        changed, self._changed = sorted(self._changed), set()
        for position in changed:
            self.size_bytes -= len(self.results[position].records or _NO_RECORDS)
            self.results[position] = self._read(position)
        if self.is_enough:
            self.stop_waiting()

    def _end_watch(self, _: "asyncio.Future[None]") -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.unwatch()

    def unwatch(self) -> None:
        for partition in self._positions:
            partition.unwatch(self)

    def stop_waiting(self) -> None:
        if self._enough is not None and not self._enough.done():
            self._enough.set_result(None)

    def _is_refused(self, target: FetchTarget) -> bool:
        if self._follower_error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return True
        return bool(self._refused) and topic_name(self._services.metadata.image, target) in self._refused

    def _read(self, position: int) -> PartitionData:
        target = self._targets[position]
        index = target.request.partition
        self._held_up.pop(position, None)
        try:
            if self._is_refused(target):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if self._uses_topic_ids:
                partition = self._services.partitions.replica_by_id(target.topic_id, index)
            else:
                partition = self._services.partitions.replica(TopicName(target.topic), PartitionIndex(index))
            role = partition.role
            if self._follower_error is not None:
                raise KafkaError(self._follower_error)
            if not isinstance(role, Leading) and not (self._rack_id and isinstance(role, Following)):
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if position not in (watched := self._positions.setdefault(partition, [])):
                watched.append(position)
                if self._is_reading:
                    partition.watch(self)
            try:
                return self._read_partition(partition, target)
            except (UncheckedSegment, DamagedRecords) as error:
                if partition.sound_again(error) is None:
                    raise
                self._held_up[position] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
                return PartitionData(partition_index=index, records=_NO_RECORDS)
        except KafkaError as error:
            self._has_news = True
            return self._failed(position, error)

    def _failed(self, position: int, error: KafkaError) -> PartitionData:
        target = self._targets[position]
        return PartitionData(
            partition_index=target.request.partition,
            error_code=error.code,
            high_watermark=-1,
            current_leader=self._hint(target, error.code),
            records=_NO_RECORDS,
        )

    def _hint(self, target: FetchTarget, error: ErrorCode) -> LeaderIdAndEpoch:
        if self._gives_hints:
            image = self._services.metadata.image
            leader = leader_hint(image, topic_name(image, target), target.request.partition, error)
            if leader is not None:
                return LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.leader_epoch)
        return NO_HINT

    def _read_partition(self, partition: Partition, target: FetchTarget) -> PartitionData:
        request = target.request
        partition.check_leader_epoch(request.current_leader_epoch)
        diverging = _diverging_epoch(partition, request.last_fetched_epoch, request.fetch_offset)
        records: Buffer | FileRegion = _NO_RECORDS
        aborted: Sequence[AbortedTransaction] | None = () if self._is_read_committed else None
        preferred = self._nearer_replica(partition)
        if diverging is not None or preferred is not None:
            self._has_news = True
        else:
            offset = Offset(request.fetch_offset)
            piece = self._find(partition, offset, request.partition_max_bytes)
            if piece is not None and piece.file is not None:
                records = FileRegion(piece.file, piece.position, piece.length)
                if self._is_read_committed:
                    aborted = _aborted_transactions(partition, piece, offset)
        self.size_bytes += len(records)
        return PartitionData(
            partition_index=request.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            diverging_epoch=diverging or _NO_DIVERGENCE,
            preferred_read_replica=NO_NODE if preferred is None else preferred,
            aborted_transactions=aborted,
            records=records,
        )

    def _nearer_replica(self, partition: Partition) -> NodeId | None:
        """An in-sync replica in the consumer's rack, if the leader is in another (KIP-392)."""
        leading = partition.role
        if not self._rack_id or not isinstance(leading, Leading):
            return None
        brokers = self._services.metadata.image.brokers
        near = [node for node in sorted(leading.isr) if node in brokers and brokers[node].rack == self._rack_id]
        return near[0] if near and leading.leader.node_id not in near else None

    def _find(self, partition: Partition, offset: Offset, max_bytes: int) -> LogSlice | None:
        """What to send; None where there is nothing to look for."""
        log = partition.log
        if offset > partition.high_watermark and not isinstance(partition.role, Leading):
            # The leader may have committed it already: this replica does not know yet (KIP-392).
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        budget = min(max_bytes, self._max_bytes - self.size_bytes)
        # One batch always goes out, however large, or a consumer could never pass it (KIP-74).
        minimum_one_batch = self.size_bytes == 0
        limit = partition.last_stable_offset if self._is_read_committed else partition.high_watermark
        if offset >= limit or (budget <= 0 and not minimum_one_batch):
            return None
        return log.read(offset, max_bytes=budget, up_to_offset=limit, minimum_one_batch=minimum_one_batch)


def topic_name(image: MetadataImage, target: FetchTarget) -> str:
    """Empty where there is no topic of that id."""
    return target.topic or image.topic_names.get(TopicId(target.topic_id), "")


def _aborted_transactions(partition: Partition, piece: LogSlice, offset: Offset) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in partition.log.aborted_transactions(piece, offset)
    ]


def _diverging_epoch(partition: Partition, last_fetched_epoch: int, fetch_offset: int) -> EpochEndOffset | None:
    """Where the reader's log parts from this one (KIP-595), if it does."""
    if last_fetched_epoch < 0:
        return None
    epoch, end_offset = partition.log.end_offset_for_epoch(LeaderEpoch(last_fetched_epoch))
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None
