"""One broker of the model: a small shell around the leader and the follower of one partition."""

import random

import msgspec

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionLeader
from quorate.replication.core.acks import Ack, AckTracker
from quorate.replication.core.divergence import Accepted, Diverged, judge_fetch
from quorate.replication.core.follower import (
    AdvanceLogStart,
    AppendRecords,
    FollowerReplica,
    RecordsAppended,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from quorate.replication.core.leader import LeaderReplica, LeaderStart, ReplicationConfig
from quorate.replication.core.leader_events import (
    FollowerFetched,
    HighWatermarkAdvanced,
    LeaderAppended,
    LeaderDurable,
    LeaderEvent,
    LiveBrokersChanged,
    MembershipChanged,
    ProposeIsr,
)
from quorate.replication.core.messages import FetchedPartition, FetchPosition
from tests.unit.replication.core.checkers import Checkers
from tests.unit.replication.core.leading import fetch_of
from tests.unit.replication.core.memory_log import MemoryLog, Record
from tests.unit.replication.core.model_controller import Image


class FetchRequest(msgspec.Struct, frozen=True, kw_only=True):
    follower: NodeId
    life: int
    leader: NodeId
    broker_epoch: BrokerEpoch
    fetch: FetchPosition


class FetchResponse(msgspec.Struct, frozen=True, kw_only=True):
    follower: NodeId
    life: int  # A connection does not outlive the process.
    answer: FetchedPartition
    records: list[Record]


class ModelNode:
    def __init__(
        self, node_id: NodeId, config: ReplicationConfig, min_insync_replicas: int, checkers: Checkers
    ) -> None:
        self.node_id = node_id
        self.log = MemoryLog()
        self.high_watermark = 0
        self.is_up = True
        self.life = 0
        self.broker_epoch = BrokerEpoch(0)
        self.images_replayed = 0
        self.leader: LeaderReplica | None = None
        self.follower: FollowerReplica | None = None
        self.acks: AckTracker[str] | None = None
        self.proposals: list[ProposeIsr] = []
        self.ended: list[Ack[str]] = []
        self._epoch = LeaderEpoch(-1)
        self._config = config
        self._min_insync_replicas = min_insync_replicas
        self._checkers = checkers

    def stop(self, rng: random.Random) -> None:
        self._resign()
        self.is_up = False
        self.high_watermark = rng.choice([self.log.start, self.high_watermark])

    def start(self, broker_epoch: BrokerEpoch, images_replayed: int) -> None:
        self.is_up = True
        self.life += 1
        self.broker_epoch = broker_epoch
        self.images_replayed = images_replayed
        self._epoch = LeaderEpoch(-1)
        # A checkpointed watermark may be beyond what a power cut has left.
        self.high_watermark = max(self.log.start, min(self.high_watermark, self.log.end))

    def replay(self, image: Image, now_ms: int) -> None:
        self.images_replayed += 1
        if image.leader_epoch > self._epoch:
            self._epoch = image.leader_epoch
            self._resign()
            self._take_role(image, now_ms)
        elif self.leader is not None:
            self.lead(LiveBrokersChanged(broker_epochs=image.broker_epochs))
            self.lead(MembershipChanged(membership=image.membership))

    def produce(self, values: list[str], write: str, now_ms: int) -> int | None:
        """The offset of the first record; None if the write is refused."""
        assert self.leader is not None
        assert self.acks is not None
        if self.leader.check_writable(acks_all=True) is not None:
            return None
        base = self.log.end
        self.log.append([(self._epoch, value) for value in values])
        self.lead(LeaderAppended(log_end_offset=Offset(self.log.end), now_ms=now_ms))
        enough = self.leader.has_enough_replicas
        self.ended += self.acks.add(write, Offset(self.log.end), Offset(self.high_watermark), enough_replicas=enough)
        return base

    def sync(self) -> None:
        self.log.sync()
        if self.leader is not None:
            self.lead(LeaderDurable(offset=Offset(self.log.synced_end)))

    def lead(self, event: LeaderEvent) -> None:
        if self.leader is None or self.acks is None:
            return
        for effect in self.leader.step(event, Offset(self.high_watermark)):
            match effect:
                case HighWatermarkAdvanced(offset=offset):
                    self._show(offset)
                    self.ended += self.acks.advance(offset, enough_replicas=self.leader.has_enough_replicas)
                case ProposeIsr():
                    self.proposals.append(effect)

    def fetch(self) -> FetchRequest | None:
        if self.follower is None or (self._config.requires_sync and self.log.synced_end < self.log.end):
            return None
        return FetchRequest(
            follower=self.node_id,
            life=self.life,
            leader=self.follower.leader.node_id,
            broker_epoch=self.broker_epoch,
            fetch=fetch_of(self.follower, self.log.view()),
        )

    def answer(self, request: FetchRequest, max_records: int, now_ms: int) -> FetchResponse:
        fetch = request.fetch
        error, diverging, records = ErrorCode.NONE, None, []
        if self.leader is None:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            verdict = judge_fetch(fetch, self.leader.leader.leader_epoch, self.log.view())
            if isinstance(verdict, Accepted):
                records = self.log.records[fetch.fetch_offset - self.log.start :][:max_records]
                self.lead(
                    FollowerFetched(
                        follower=request.follower,
                        broker_epoch=request.broker_epoch,
                        fetch_offset=fetch.fetch_offset,
                        now_ms=now_ms,
                    )
                )
            elif isinstance(verdict, Diverged):
                diverging = verdict.diverging_epoch
            else:
                error = verdict.error
        answer = FetchedPartition(
            fetch=fetch,
            error=error,
            diverging_epoch=diverging,
            log_start_offset=Offset(self.log.start),
            high_watermark=Offset(self.high_watermark),
            records=memoryview(b"records" if records else b""),
        )
        return FetchResponse(follower=request.follower, life=request.life, answer=answer, records=records)

    def take(self, response: FetchResponse) -> None:
        if self.follower is None:
            return
        for effect in self.follower.step(response.answer, self.log.view(), Offset(self.high_watermark)):
            match effect:
                case AppendRecords():
                    self.log.append(response.records)
                    for shown in self.follower.step(RecordsAppended(), self.log.view(), Offset(self.high_watermark)):
                        assert isinstance(shown, HighWatermarkAdvanced)
                        self._show(shown.offset)
                case TruncateTo(offset=offset):
                    self.log.truncate_to(offset)
                case TruncateFullyAndStartAt(offset=offset):
                    self.log.start_at(offset)
                case AdvanceLogStart(offset=offset):
                    self.log.delete_before(offset)
                case HighWatermarkAdvanced(offset=offset):
                    self._show(offset)

    def _take_role(self, image: Image, now_ms: int) -> None:
        if image.leader is None:
            return
        leadership = PartitionLeader(node_id=image.leader, leader_epoch=image.leader_epoch)
        if image.leader == self.node_id:
            self._checkers.one_leader_per_epoch(image.leader_epoch, self.node_id, self.life)
            self.log.open_epoch(image.leader_epoch)
            self.leader = LeaderReplica(self._leader_start(leadership, image, now_ms), self._config)
            self._show(self.leader.advanced(Offset(self.high_watermark)))
            self.acks = AckTracker()
        else:
            self.follower = FollowerReplica(leadership)

    def _leader_start(self, leadership: PartitionLeader, image: Image, now_ms: int) -> LeaderStart:
        return LeaderStart(
            leader=leadership,
            membership=image.membership,
            broker_epochs=image.broker_epochs,
            log_end_offset=Offset(self.log.end),
            durable_offset=Offset(self.log.synced_end),
            high_watermark=Offset(self.high_watermark),
            min_insync_replicas=self._min_insync_replicas,
            now_ms=now_ms,
        )

    def _resign(self) -> None:
        if self.acks is not None:
            self.ended += self.acks.close()
        self.leader = self.follower = self.acks = None

    def _show(self, offset: int) -> None:
        self._checkers.watermark_shown(self.node_id, self.log, self.high_watermark, offset)
        self.high_watermark = offset
