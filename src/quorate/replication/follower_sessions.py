"""The leader's side of replication: what each follower has asked for, and answering when there is news.

A follower's request waits until one of the partitions it has asked for has records, a newer high watermark or a new
leader. Answers leave at the end of the loop turn, so that many appends make one answer. A newer request of the same
follower ends the wait of the older one.
"""

import asyncio
from collections.abc import Sequence
from itertools import chain, islice
from typing import Protocol

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import BrokerEpoch, EpochEnd, NodeId, Offset
from quorate.kernel.ports import Buffer
from quorate.kernel.tasks import monotonic_ms
from quorate.replication.catch_up_throttle import CatchUpThrottle
from quorate.replication.core.divergence import Accepted, Diverged, judge_fetch
from quorate.replication.core.leader_events import FollowerFetched
from quorate.replication.core.messages import (
    FetchedPartition,
    FetchPosition,
    PartitionKey,
    ReplicaFetch,
    ReplicaFetchAnswer,
    decode_fetch,
    encode_answer,
)
from quorate.replication.leading import Leading, require_leading
from quorate.replication.partition import Partition
from quorate.transport.peers.channels import Sender

#: An answer that has nothing to say is sent after this, as a sign of life.
_MAX_WAIT_S = 2.0
#: A watermark alone is no hurry: mostly records follow that take it along.
_WATERMARK_DELAY_S = 0.01
_PARTITION_MAX_BYTES = 1 << 20
#: No further partition is added from here on. With the last one it still fits the memory that a connection keeps.
_ANSWER_MAX_BYTES = 2 << 20
#: Nor beyond so many, whatever their size: each takes some 10 µs of one turn of the loop.
_ANSWER_MAX_PARTITIONS = 500
_NOTHING = memoryview(b"")
_UNKNOWN = Offset(-1)


class FindPartition(Protocol):
    def __call__(self, key: PartitionKey) -> Partition:
        """The partition if this node has a replica of it and leads; ``KafkaError`` otherwise."""
        ...


class FollowerSessions:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, find: FindPartition, throttle: CatchUpThrottle | None = None
    ) -> None:
        self._loop = loop
        self._find = find
        self._throttle = throttle
        self._sessions: dict[NodeId, _FollowerSession] = {}

    async def fetch(self, sender: Sender, payload: bytes) -> Sequence[Buffer]:
        """Serve a follower's request."""
        follower, request = sender.node_id, decode_fetch(payload)
        session = self._sessions.get(follower)
        if session is None or session.number != request.session:
            if session is not None:
                session.end()
            session = self._sessions[follower] = self._open(follower, request.session)
        return await session.fetch(request)

    def _open(self, follower: NodeId, number: int) -> "_FollowerSession":
        return _FollowerSession(self._loop, self._find, self._throttle, follower, number)

    def leadership_changed(self, partition: Partition) -> None:
        """Followers that have asked this node for the partition must hear that it has another leader."""
        for session in self._sessions.values():
            session.leadership_changed(partition)

    def refresh(self, partition: Partition, now_ms: int) -> None:
        """Have followers that wait out of sync considered anew: they will not ask again by themselves."""
        for session in self._sessions.values():
            session.refresh(partition, now_ms)

    def stop(self) -> None:
        for session in self._sessions.values():
            session.end()
        self._sessions.clear()


class _FollowerSession:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        find: FindPartition,
        throttle: CatchUpThrottle | None,
        follower: NodeId,
        number: int,
    ) -> None:
        self.number = number
        self._loop = loop
        self._find = find
        self._throttle = throttle
        self._follower = follower
        self._broker_epoch = BrokerEpoch(-1)
        #: What has been asked for and not been answered, with the partition that watches for it.
        self._asked: dict[PartitionKey, tuple[FetchPosition, Partition]] = {}
        #: Partitions with something to tell, in the order in which it happened, and answers that are ready.
        self._news: dict[PartitionKey, None] = {}
        self._ready: list[FetchedPartition] = []
        #: Partitions that have no more to tell than a watermark: they go along, or are news after a while.
        self._watermarks: dict[PartitionKey, None] = {}
        #: Partitions with records that the throttle holds back.
        self._held_back: dict[PartitionKey, None] = {}
        self._throttle_timer: asyncio.TimerHandle | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._wake_scheduled = False
        self._watermark_timer: asyncio.TimerHandle | None = None
        self._ended = False

    async def fetch(self, request: ReplicaFetch) -> Sequence[Buffer]:
        self._broker_epoch = BrokerEpoch(request.broker_epoch)
        self._wake()
        for fetch in request.partitions:
            self._note(fetch)
        if not self._news and not self._ready:
            await self._wait()
        fetched, self._ready = self._ready[:_ANSWER_MAX_PARTITIONS], self._ready[_ANSWER_MAX_PARTITIONS:]
        self._collect(fetched)
        return encode_answer(ReplicaFetchAnswer(not self._ended, fetched))

    def end(self) -> None:
        self._ended = True
        for key in list(self._asked):
            self._forget(key)
        if self._watermark_timer is not None:
            self._watermark_timer.cancel()
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
        self._wake()

    # What partitions say.

    def has_records(self, partition: Partition) -> None:
        self._news[_key(partition)] = None
        self._schedule_wake()

    def has_watermark(self, partition: Partition) -> None:
        self._watermarks[_key(partition)] = None
        if self._watermark_timer is None:
            self._watermark_timer = self._loop.call_later(_WATERMARK_DELAY_S, self._watermark_due)

    def leadership_changed(self, partition: Partition) -> None:
        key = _key(partition)
        asked = self._asked.get(key)
        if asked is not None:
            self._forget(key)
            self._ready.append(_refused(asked[0], ErrorCode.NOT_LEADER_OR_FOLLOWER))
            self._schedule_wake()

    def refresh(self, partition: Partition, now_ms: int) -> None:
        asked = self._asked.get(_key(partition))
        role = partition.role
        if asked is not None and isinstance(role, Leading) and self._follower not in role.isr:
            partition.step(self._fetched(asked[0], now_ms))

    def _note(self, fetch: FetchPosition) -> None:
        """Note where the follower stands, which may commit records, and watch for what comes next."""
        try:
            partition = self._find(fetch.key)
        except KafkaError as error:
            self._ready.append(_refused(fetch, error.code))
            return
        match judge_fetch(fetch, partition.leader_epoch, partition.replica_log):
            case Accepted():
                self._watch(fetch, partition)
            case Diverged(diverging_epoch=named):
                self._ready.append(_fetched_partition(fetch, partition, diverging=named))
            case refused:
                self._ready.append(_fetched_partition(fetch, partition, error=refused.error))

    def _watch(self, fetch: FetchPosition, partition: Partition) -> None:
        self._asked[fetch.key] = fetch, partition
        leading = require_leading(partition)
        leading.followers[self._follower] = self
        leading.step(self._fetched(fetch, monotonic_ms(self._loop)))
        if fetch.fetch_offset < partition.log.log_end_offset:
            self._news[fetch.key] = None
        elif (
            fetch.known_high_watermark < partition.high_watermark
            or fetch.known_log_start < partition.log.log_start_offset <= fetch.known_high_watermark
        ):
            self.has_watermark(partition)

    def _fetched(self, fetch: FetchPosition, now_ms: int) -> FollowerFetched:
        return FollowerFetched(
            follower=self._follower,
            broker_epoch=self._broker_epoch,
            fetch_offset=fetch.fetch_offset,
            now_ms=now_ms,
        )

    def _collect(self, fetched: list[FetchedPartition]) -> None:
        """Take what there is to tell, up to the size of an answer; the rest goes with the next one."""
        size_bytes = 0
        for key in list(islice(chain(self._news, self._watermarks), _ANSWER_MAX_PARTITIONS - len(fetched))):
            if size_bytes >= _ANSWER_MAX_BYTES:
                break
            self._news.pop(key, None)
            self._watermarks.pop(key, None)
            asked = self._asked.get(key)
            if asked is None:
                continue
            fetch, partition = asked
            max_bytes = _PARTITION_MAX_BYTES
            throttle = self._throttle
            if throttle is None or not throttle.applies_to(partition.identity, self._follower):
                throttle = None
            elif (wait_s := throttle.wait_s()) > 0:
                self._hold_back(key, wait_s)
                continue
            else:
                max_bytes = min(max_bytes, int(throttle.allowance_bytes))
            one = self._read(fetch, partition, max_bytes)
            if one is None:
                continue  # It is news again when the segment was checked.
            self._forget(key)
            size_bytes += len(one.records)
            fetched.append(one)
            if throttle is not None:
                throttle.moved(len(one.records))

    def _hold_back(self, key: PartitionKey, wait_s: float) -> None:
        self._held_back[key] = None
        if self._throttle_timer is None:
            self._throttle_timer = self._loop.call_later(wait_s, self._throttle_eased)

    def _throttle_eased(self) -> None:
        self._throttle_timer = None
        self._news.update(self._held_back)
        self._held_back = {}
        self._wake()

    def _read(self, fetch: FetchPosition, partition: Partition, max_bytes: int) -> FetchedPartition | None:
        """None where a segment has to be checked first, or is being repaired."""
        log = partition.log
        try:
            piece = log.read(
                fetch.fetch_offset,
                max_bytes=max_bytes,
                up_to_offset=log.log_end_offset,
                minimum_one_batch=True,
            )
            return _fetched_partition(fetch, partition, records=memoryview(piece.read()))
        except KafkaError as error:
            if partition.sound_again(error) is not None:
                return None
            return _fetched_partition(fetch, partition, error=error.code)

    def _forget(self, key: PartitionKey) -> None:
        _, partition = self._asked.pop(key)
        role = partition.role
        if isinstance(role, Leading) and role.followers.get(self._follower) is self:
            del role.followers[self._follower]

    async def _wait(self) -> None:
        self._waiting = waiting = self._loop.create_future()
        timer = self._loop.call_later(_MAX_WAIT_S, self._wake)
        try:
            await waiting
        finally:
            timer.cancel()

    def _watermark_due(self) -> None:
        self._watermark_timer = None
        if self._watermarks:
            self._news.update(self._watermarks)
            self._watermarks.clear()
            self._wake()

    def _schedule_wake(self) -> None:
        if not self._wake_scheduled:
            self._wake_scheduled = True
            self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._wake_scheduled = False
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


def _key(partition: Partition) -> PartitionKey:
    return partition.identity.topic_id, partition.identity.partition


def _refused(fetch: FetchPosition, error: ErrorCode) -> FetchedPartition:
    return FetchedPartition(fetch, error, None, _UNKNOWN, _UNKNOWN, _NOTHING)


def _fetched_partition(
    fetch: FetchPosition,
    partition: Partition,
    *,
    error: ErrorCode = ErrorCode.NONE,
    diverging: EpochEnd | None = None,
    records: memoryview = _NOTHING,
) -> FetchedPartition:
    return FetchedPartition(fetch, error, diverging, partition.log.log_start_offset, partition.high_watermark, records)
