"""The follower's side, decided: which partitions to fetch from which leader next, and what to do with each answer.

``FetchPlan`` is about all partitions that a node follows. A partition is in one request at a time. One that fails waits
alone, longer each time; the others go on. A leader fills its answer in the order of the request up to a byte limit, so
a partition that was answered goes to the end of the line.

``FollowerReplica`` is about one partition in one leader epoch. It appends what follows its log, cuts its log where the
leader says that the two part, and knows what is committed. It never cuts at its own high watermark: what lies above it
may be committed all the same (KIP-101).
"""

from collections.abc import Hashable
from itertools import islice
from typing import Generic, TypeVar, assert_never

import msgspec

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import EpochEnd, LeaderEpoch, NodeId, Offset, PartitionLeader
from quorate.replication.core.divergence import ReplicaLog, truncation_offset
from quorate.replication.core.leader_events import HighWatermarkAdvanced
from quorate.replication.core.messages import FetchedPartition, FetchPosition

PartitionT = TypeVar("PartitionT", bound=Hashable)


class FetchPlanConfig(msgspec.Struct, frozen=True, kw_only=True):
    backoff_ms: int = 20
    backoff_max_ms: int = 1_000


class PlannedFetch(msgspec.Struct, Generic[PartitionT], frozen=True, kw_only=True, gc=False):
    """One partition of a request; comes back with the outcome, so that one of an earlier epoch is known as such."""

    partition: PartitionT
    leader: NodeId
    leader_epoch: LeaderEpoch


class _Followed:
    __slots__ = ("failures", "in_flight", "leader", "ready_ms")

    def __init__(self, leader: PartitionLeader) -> None:
        self.leader = leader
        self.in_flight = False
        self.failures = 0
        self.ready_ms = 0


class _Line(Generic[PartitionT]):
    """The partitions that one node leads."""

    def __init__(self) -> None:
        self.followed: dict[PartitionT, _Followed] = {}
        #: In the order of the next request.
        self.ready: dict[PartitionT, None] = {}
        #: Not to be asked for before a certain time.
        self.late: dict[PartitionT, None] = {}


class FetchPlan(Generic[PartitionT]):
    def __init__(self, config: FetchPlanConfig) -> None:
        self._config = config
        self._lines: dict[NodeId, _Line[PartitionT]] = {}
        self._leaders: dict[PartitionT, NodeId] = {}

    def follow(self, partition: PartitionT, leader: PartitionLeader) -> None:
        """Fetch the partition from this leader at once, whatever became of the one before; an old epoch is no news."""
        known = self._followed(partition)
        if known is not None and known.leader.leader_epoch >= leader.leader_epoch:
            return
        self.unfollow(partition)
        self._leaders[partition] = leader.node_id
        line = self._lines.setdefault(leader.node_id, _Line())
        line.followed[partition] = _Followed(leader)
        line.ready[partition] = None

    def unfollow(self, partition: PartitionT) -> None:
        node = self._leaders.pop(partition, None)
        if node is None:
            return
        line = self._lines[node]
        del line.followed[partition]
        line.ready.pop(partition, None)
        line.late.pop(partition, None)
        if not line.followed:
            del self._lines[node]

    def leaders(self) -> list[NodeId]:
        """The nodes that there is something to fetch from."""
        return sorted(self._lines)

    def next_fetch(self, leader: NodeId, now_ms: int, most: int) -> list[PlannedFetch[PartitionT]]:
        """What the next request to this leader asks for, in order; each is to be reported back exactly once."""
        line = self._lines.get(leader)
        if line is None:
            return []
        for partition in [one for one in line.late if line.followed[one].ready_ms <= now_ms]:
            del line.late[partition]
            line.ready[partition] = None
        planned = []
        for partition in list(islice(line.ready, most)):
            del line.ready[partition]
            followed = line.followed[partition]
            followed.in_flight = True
            planned.append(PlannedFetch(partition=partition, leader=leader, leader_epoch=followed.leader.leader_epoch))
        return planned

    def is_ready(self, leader: NodeId) -> bool:
        """Whether there is something to ask for that does not have to wait."""
        line = self._lines.get(leader)
        return line is not None and bool(line.ready)

    def next_ready_ms(self, leader: NodeId) -> int | None:
        """When the first partition that has to wait may be asked for again; None if none has to."""
        line = self._lines.get(leader)
        return None if line is None else min((line.followed[one].ready_ms for one in line.late), default=None)

    def answered(self, fetch: PlannedFetch[PartitionT]) -> None:
        """The answer is dealt with: appended, synced or truncated. The partition may be asked for again."""
        followed = self._returned(fetch)
        if followed is None:
            return
        followed.failures = 0
        self._lines[fetch.leader].ready[fetch.partition] = None

    def failed(self, fetch: PlannedFetch[PartitionT], now_ms: int) -> None:
        """The leader refused the partition, or could not be reached, or the answer could not be dealt with."""
        followed = self._returned(fetch)
        if followed is None:
            return
        delay_ms = self._config.backoff_ms << min(followed.failures, 20)
        followed.failures += 1
        self._wait(fetch, followed, now_ms + min(delay_ms, self._config.backoff_max_ms))

    def defer(self, fetch: PlannedFetch[PartitionT], until_ms: int) -> None:
        """The partition was not asked for after all, and is not to be before then."""
        followed = self._returned(fetch)
        if followed is not None:
            self._wait(fetch, followed, until_ms)

    def _wait(self, fetch: PlannedFetch[PartitionT], followed: _Followed, until_ms: int) -> None:
        followed.ready_ms = until_ms
        self._lines[fetch.leader].late[fetch.partition] = None

    def _returned(self, fetch: PlannedFetch[PartitionT]) -> _Followed | None:
        """The partition, if it still follows the leader epoch that the fetch was for."""
        followed = self._followed(fetch.partition)
        if followed is None or not followed.in_flight or followed.leader.leader_epoch != fetch.leader_epoch:
            return None
        followed.in_flight = False
        return followed

    def _followed(self, partition: PartitionT) -> _Followed | None:
        node = self._leaders.get(partition)
        return None if node is None else self._lines[node].followed[partition]


class CommittedRecordsWouldBeLost(Exception):
    """The leader lacks records that were committed, and its election was not an unclean one: stop, loudly."""


class RecordsAppended(msgspec.Struct, frozen=True, kw_only=True):
    """The shell has carried out ``AppendRecords``."""


class AppendRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Append the records of the answer, then report ``RecordsAppended``.

    Where durability asks for it, sync before the next fetch: its offset says that everything before it is on disk.
    """


class TruncateTo(msgspec.Struct, frozen=True, kw_only=True):
    """Cut the log at the offset, durably, before the next fetch."""

    offset: Offset


class TruncateFullyAndStartAt(msgspec.Struct, frozen=True, kw_only=True):
    """Drop everything: the leader has nothing before ``offset`` any more, nor this log anything of use after it."""

    offset: Offset


class AdvanceLogStart(msgspec.Struct, frozen=True, kw_only=True):
    """The leader has deleted the records before ``offset``."""

    offset: Offset


class BackOff(msgspec.Struct, frozen=True, kw_only=True):
    """The leader would not answer; ask again later, or under the next leader epoch."""

    error: ErrorCode


FollowerEvent = FetchedPartition | RecordsAppended
FollowerEffect = (
    AppendRecords | TruncateTo | TruncateFullyAndStartAt | AdvanceLogStart | HighWatermarkAdvanced | BackOff
)


class FollowerReplica:
    """``log`` and ``high_watermark`` are always what they are at the moment of the call.

    The high watermark never moves back, except where an unclean election has undone what was committed: ``TruncateTo``
    takes it along.
    """

    def __init__(self, leader: PartitionLeader, *, is_unclean: bool = False) -> None:
        self.leader = leader
        #: As the newest answer had it.
        self._leader_high_watermark = Offset(0)
        self._is_unclean = is_unclean

    def step(self, event: FollowerEvent, log: ReplicaLog, high_watermark: Offset) -> list[FollowerEffect]:
        """Apply one event; return what the shell must carry out, in order."""
        match event:
            case FetchedPartition():
                return self._take_answer(event, log, high_watermark)
            case RecordsAppended():
                return self._advance(high_watermark, self._committed(log, high_watermark))
            case _:
                assert_never(event)

    def _take_answer(self, answer: FetchedPartition, log: ReplicaLog, high_watermark: Offset) -> list[FollowerEffect]:
        if not self._is_about(answer.fetch, log):
            return []  # Late, or doubled: it is about a log that we no longer have.
        if answer.error is not ErrorCode.NONE:
            return self._take_error(answer.error, answer.log_start_offset, log, high_watermark)
        if answer.diverging_epoch is not None:
            return self._truncate(answer.diverging_epoch, answer.log_start_offset, log, high_watermark)
        self._leader_high_watermark = answer.high_watermark
        committed = self._committed(log, high_watermark)
        effects = self._advance(high_watermark, committed)
        if log.log_start_offset < answer.log_start_offset <= committed:
            effects.append(AdvanceLogStart(offset=answer.log_start_offset))
        if answer.records:
            effects.append(AppendRecords())  # Last: what it leads to is newer than the effects before.
        return effects

    def _is_about(self, fetch: FetchPosition, log: ReplicaLog) -> bool:
        asked = fetch.leader_epoch, fetch.fetch_offset, fetch.last_fetched_epoch
        return asked == (self.leader.leader_epoch, log.log_end_offset, log.last_epoch)

    def _take_error(
        self, error: ErrorCode, leader_log_start: Offset, log: ReplicaLog, high_watermark: Offset
    ) -> list[FollowerEffect]:
        if error == ErrorCode.OFFSET_OUT_OF_RANGE and leader_log_start >= log.log_end_offset:
            return self._start_over(leader_log_start, high_watermark)
        return [BackOff(error=error)]

    def _truncate(
        self, named: EpochEnd, leader_log_start: Offset, log: ReplicaLog, high_watermark: Offset
    ) -> list[FollowerEffect]:
        offset = truncation_offset(log.epochs, log.log_end_offset, named)
        if offset <= leader_log_start:
            # The leader no longer knows which epochs it had there: nothing vouches for what would be left.
            return self._start_over(leader_log_start, high_watermark)
        self._check_loss(offset, high_watermark)
        return [TruncateTo(offset=offset)]

    def _start_over(self, leader_log_start: Offset, high_watermark: Offset) -> list[FollowerEffect]:
        self._check_loss(leader_log_start, high_watermark)
        # A leader deletes committed records only, so all that it no longer has was committed.
        return [
            TruncateFullyAndStartAt(offset=leader_log_start),
            HighWatermarkAdvanced(offset=leader_log_start),
        ]

    def _check_loss(self, offset: Offset, high_watermark: Offset) -> None:
        if offset < high_watermark and not self._is_unclean:
            raise CommittedRecordsWouldBeLost(
                f"leader {self.leader.node_id} of epoch {self.leader.leader_epoch} has records up to {offset} only, "
                f"and everything before {high_watermark} is committed"
            )

    def _committed(self, log: ReplicaLog, high_watermark: Offset) -> Offset:
        return max(high_watermark, min(self._leader_high_watermark, log.log_end_offset))

    def _advance(self, high_watermark: Offset, committed: Offset) -> list[FollowerEffect]:
        return [HighWatermarkAdvanced(offset=committed)] if committed > high_watermark else []
