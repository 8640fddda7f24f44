"""A follower of one partition in one leader epoch: what to do with each answer of its leader.

It appends what follows its log, cuts its log where the leader says that the two part, and knows what is committed. It
never cuts at its own high watermark: what lies above it may be committed all the same (KIP-101).
"""

from typing import assert_never

import msgspec

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import EpochEnd, Offset, PartitionLeader
from quorate.replication.core.divergence import ReplicaLog, truncation_offset
from quorate.replication.core.leader_events import HighWatermarkAdvanced
from quorate.replication.core.messages import FetchedPartition, FetchPosition


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
