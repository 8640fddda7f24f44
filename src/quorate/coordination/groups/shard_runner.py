"""Runs one shard of the group coordinator on this node: its partition's log, its timers, and those who wait for it.

All rules are in ``quorate.coordination.groups.core``. Here effects are carried out: records become a batch in the
log, timers live on the loop, and replies resolve the futures of the requests. The shard's clock is the wall clock at
the start, carried on by the loop's: a step of the wall clock must not end the sessions of all members.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from itertools import count

from quorate.coordination.core.effects import (
    AppendCommitted,
    AppendFailed,
    AppendToLog,
    CancelTimer,
    CommandReceived,
    LeadershipLost,
    LogLoaded,
    Reply,
    SetTimer,
    TimerFired,
    Token,
)
from quorate.coordination.core.errors import CorruptCoordinatorRecord
from quorate.coordination.groups.core.commands import Command, Result
from quorate.coordination.groups.core.consumer.commands import ConsumerGroupHeartbeat
from quorate.coordination.groups.core.consumer.settings import ConsumerGroupSettings
from quorate.coordination.groups.core.consumer.topics import ClusterTopics
from quorate.coordination.groups.core.effects import (
    Append,
    Effect,
    Event,
    GroupSettingsChanged,
    TimerKey,
    TopicsChanged,
)
from quorate.coordination.groups.core.record_codec import decode_record, encode_key, encode_value
from quorate.coordination.groups.core.shard import GroupCoordinatorShard
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, GroupId, LeaderEpoch, Offset, ProducerId
from quorate.kernel.ports import Clock
from quorate.records.batch import BatchHeader, check_crc, iterate_batches
from quorate.records.builder import build_batch
from quorate.records.control import marker_of_batch
from quorate.records.record import Record, iterate_records
from quorate.replication.integrity.sound_reads import when_sound
from quorate.replication.partition import Partition

logger = logging.getLogger(__name__)

#: Read and replayed in one go while loading; in between, the loop serves others.
_LOAD_CHUNK_BYTES = 256 * 1024


class GroupShardRunner:
    def __init__(
        self,
        shard: GroupCoordinatorShard,
        partition: Partition,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        executor: Executor,
        on_failure: Callable[["GroupShardRunner"], None],
    ) -> None:
        self.partition = partition
        #: The reign that this runner is for; another one starts with what the log says then.
        self.leader_epoch: LeaderEpoch = partition.leader_epoch
        self._shard = shard
        self._loop = loop
        self._executor = executor
        self._on_failure = on_failure
        self._clock_offset_ms = clock.now_ms() - loop.time() * 1000
        self._events: deque[tuple[Event, int]] = deque()
        self._is_handling = False
        self._is_stopped = False
        self._tokens = count()
        self._waiting: dict[Token, asyncio.Future[Result]] = {}
        self._timers: dict[TimerKey, asyncio.TimerHandle] = {}
        self._loading: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Load what the log says. All of it will be committed: a leader never takes back what it has."""
        self.partition.when_committed(self.partition.log.log_end_offset, self._log_committed)

    def stop(self) -> None:
        """Tell everybody who waits to look for another coordinator, and do nothing more."""
        self._report(LeadershipLost())
        self._is_stopped = True
        if self._loading is not None:
            self._loading.cancel()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    @property
    def is_over(self) -> bool:
        return self._is_stopped

    def topics_changed(self, topics: ClusterTopics) -> None:
        self._report(TopicsChanged(topics=topics))

    def settings_changed(self, settings: Mapping[GroupId, ConsumerGroupSettings]) -> None:
        self._report(GroupSettingsChanged(settings=settings))

    def unresolved_patterns(self, command: ConsumerGroupHeartbeat) -> set[str]:
        return self._shard.unresolved_patterns(command)

    def ask(self, command: Command) -> asyncio.Future[Result]:
        token = Token(next(self._tokens))
        future = self._waiting[token] = self._loop.create_future()
        self._report(CommandReceived(token=token, command=command))
        return future

    def _log_committed(self, error: KafkaError | None) -> None:
        if self._is_stopped:
            return
        if error is not None and not _is_committed(error):
            self._load_failed(error)
        elif self.partition.log.log_start_offset == self.partition.high_watermark:
            self._report(LogLoaded())  # A new topic's coordinator need not keep its first clients waiting.
        else:
            self._loading = self._loop.create_task(self._load())

    async def _load(self) -> None:
        partition = self.partition
        try:
            loaded = await self._replay_log(partition.log.log_start_offset, partition.high_watermark)
        except (KafkaError, CorruptCoordinatorRecord, OSError) as error:
            self._load_failed(error)
            return
        logger.info("groups loaded partition=%s epoch=%s records=%s", partition, self.leader_epoch, loaded)
        self._report(LogLoaded())

    def _load_failed(self, error: Exception) -> None:
        logger.error("groups not loaded partition=%s epoch=%s error=%s", self.partition, self.leader_epoch, error)
        self._on_failure(self)

    async def _replay_log(self, offset: Offset, end_offset: Offset) -> int:
        replayed = 0
        while offset < end_offset:
            read = partial(self.partition.log.read, offset, max_bytes=_LOAD_CHUNK_BYTES, up_to_offset=end_offset)
            piece = await when_sound(self.partition, partial(read, minimum_one_batch=True))
            data = await self._loop.run_in_executor(self._executor, piece.read)
            if not data:
                break
            for position, header in iterate_batches(data, strict=True):
                check_crc(data, position, header)
                if header.is_control:
                    self._replay_marker(data, position, header.producer_id)
                else:
                    replayed += self._replay_batch(data, position, header)
                offset = header.next_offset
        return replayed

    def _replay_marker(self, data: bytes, position: int, producer_id: ProducerId) -> None:
        marker = marker_of_batch(data, position)
        if marker is not None:
            self._shard.replay_end(producer_id, is_commit=marker.is_commit)

    def _replay_batch(self, data: bytes, position: int, header: BatchHeader) -> int:
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        replayed = 0
        for entry in iterate_records(data, position):
            if entry.key is None:
                raise CorruptCoordinatorRecord(f"record without a key at offset {entry.offset}")
            record = decode_record(entry.key, entry.value)
            if record is not None:
                self._shard.replay(record, producer_id)
                replayed += 1
        return replayed

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000 + self._clock_offset_ms)

    def _report(self, event: Event, not_before_ms: int = 0) -> None:
        """Hand the event to the shard; one that comes up meanwhile is handled after it, never inside."""
        if self._is_stopped:
            return
        self._events.append((event, max(self._now_ms(), not_before_ms)))
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events:
                event, now_ms = self._events.popleft()
                for effect in self._shard.handle(event, now_ms):
                    self._carry_out(effect, now_ms)
        finally:
            self._is_handling = False

    def _carry_out(self, effect: Effect, now_ms: int) -> None:
        match effect:
            case Reply(token=token, result=result):
                future = self._waiting.pop(token)
                if not future.done():  # The client may have gone.
                    future.set_result(result)
            case SetTimer(key=key, at_ms=at_ms):
                self._cancel_timer(key)
                self._timers[key] = self._loop.call_later(max(at_ms - now_ms, 0) / 1000, self._fire, key, at_ms)
            case CancelTimer(key=key):
                self._cancel_timer(key)
            case AppendToLog():
                self._append(effect, now_ms)

    def _fire(self, key: TimerKey, at_ms: int) -> None:
        del self._timers[key]
        # Loops may fire a fraction of a millisecond early, which must not make the timer count as stale.
        self._report(TimerFired(key=key), not_before_ms=at_ms)

    def _cancel_timer(self, key: TimerKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _append(self, append: Append, now_ms: int) -> None:
        try:
            if append.end is not None:
                info = self.partition.append_marker(append.end, now_ms)
            else:
                info = self.partition.append(_batch_of(append, now_ms), now_ms, acks_all=True)
        except KafkaError as error:
            self._report(AppendFailed(append=append, error=error.code))
            return
        self.partition.when_committed(Offset(info.last_offset + 1), lambda error: self._appended(append, error))

    def _appended(self, append: Append, error: KafkaError | None) -> None:
        if error is None or _is_committed(error):
            self._report(AppendCommitted(append=append))
        else:
            self._report(AppendFailed(append=append, error=error.code))


def _batch_of(append: Append, now_ms: int) -> memoryview:
    producer_id, producer_epoch = append.transaction or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    batch = build_batch(
        (
            Record(Offset(index), now_ms, encode_key(record), encode_value(record))
            for index, record in enumerate(append.records)
        ),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=append.transaction is not None,
    )
    return memoryview(bytearray(batch))


def _is_committed(error: KafkaError) -> bool:
    """Fewer replicas than asked for have it, but all that are in sync: it is in the log for good."""
    return error.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
