"""What a follower says in a fetch, and whether its leader may believe it.

A fetch offset is a statement: "everything before it is in my log, equal to yours, and synced where the cluster asks
for that". The leader counts it only if both stand in one leader epoch and the logs have not parted.
"""

from collections.abc import Sequence

import msgspec

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_LEADER_EPOCH, EpochEnd, LeaderEpoch, Offset
from quorate.replication.core.divergence import EpochStart, diverging_epoch, last_epoch
from quorate.replication.core.messages import FetchPosition


class ReplicaLog(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A log as the rules of replication see it."""

    log_start_offset: Offset
    log_end_offset: Offset
    epochs: Sequence[EpochStart]

    @property
    def last_epoch(self) -> LeaderEpoch:
        return last_epoch(self.epochs, self.log_end_offset)


class Accepted(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The follower's log is a prefix of the leader's: it counts as ``FollowerFetched``, and gets what follows."""


class Diverged(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The follower must truncate first; the fetch says nothing about what it has."""

    diverging_epoch: EpochEnd


class FetchRefused(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    error: ErrorCode


def judge_fetch(fetch: FetchPosition, leader_epoch: LeaderEpoch, log: ReplicaLog) -> Accepted | Diverged | FetchRefused:
    """What the leader of ``leader_epoch`` answers to a follower that asks so."""
    if fetch.leader_epoch < leader_epoch:
        return FetchRefused(error=ErrorCode.FENCED_LEADER_EPOCH)
    if fetch.leader_epoch > leader_epoch or fetch.last_fetched_epoch > leader_epoch:
        # There is a newer leader; this node has yet to hear of it, and must not make anybody truncate.
        return FetchRefused(error=ErrorCode.UNKNOWN_LEADER_EPOCH)
    if fetch.fetch_offset < log.log_start_offset or _is_unvouched(fetch, log):
        return FetchRefused(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    diverging = diverging_epoch(log.epochs, fetch.last_fetched_epoch, fetch.fetch_offset, log.log_end_offset)
    return Accepted() if diverging is None else Diverged(diverging_epoch=diverging)


def _is_unvouched(fetch: FetchPosition, log: ReplicaLog) -> bool:
    """The follower's last record is just below the log start, and of an epoch that went with what was deleted.

    Nobody knows any more whether this log had the same record there. The follower has nothing that is still wanted.
    """
    return (
        fetch.fetch_offset == log.log_start_offset
        and fetch.last_fetched_epoch != NO_LEADER_EPOCH
        and (not log.epochs or fetch.last_fetched_epoch < log.epochs[0][0])
    )
