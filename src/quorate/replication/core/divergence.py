"""Where two logs of one partition diverge (KIP-101, KIP-279, KIP-595).

By that a leader knows whether to believe what a follower says in a fetch, and the follower how far to truncate.

A fetch offset is a statement: "everything before it is in my log, equal to yours, and synced where the cluster asks
for that". The leader counts it only if both stand in one leader epoch and the logs have not diverged.

A log's epochs are a list of (leader epoch, offset where it starts), both rising strictly. Two logs that agree on the
epoch of a record at an offset agree on everything before it, so comparing epochs is comparing content.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import msgspec

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_LEADER_EPOCH, EpochEnd, LeaderEpoch, Offset
from quorate.replication.core.messages import FetchPosition

EpochStart = tuple[LeaderEpoch, Offset]


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


def diverging_epoch(
    epochs: Sequence[EpochStart], last_fetched_epoch: LeaderEpoch, fetch_offset: Offset, log_end_offset: Offset
) -> EpochEnd | None:
    """The leader's side: None if the follower's log is a prefix of this one, else the newest epoch both may share.

    The follower's last record, at ``fetch_offset - 1``, carries ``last_fetched_epoch``. A follower whose log is empty
    names no epoch, and can only be wrong by standing beyond the end.
    """
    if last_fetched_epoch == NO_LEADER_EPOCH:
        if fetch_offset <= log_end_offset:
            return None
        return EpochEnd(leader_epoch=last_epoch(epochs, log_end_offset), end_offset=log_end_offset)
    shared = _epoch_end(epochs, last_fetched_epoch, log_end_offset)
    if shared is None:
        return EpochEnd(leader_epoch=NO_LEADER_EPOCH, end_offset=log_end_offset)
    if shared.leader_epoch < last_fetched_epoch or shared.end_offset < fetch_offset:
        return shared
    return None


def truncation_offset(epochs: Sequence[EpochStart], log_end_offset: Offset, named: EpochEnd) -> Offset:
    """The follower's side: where to cut the log, given the epoch that the leader named; always below its end.

    Where the follower does not have that epoch it cuts all that is newer and asks again: the next answer names an
    older one (KIP-279).
    """
    held = _with_records(epochs, log_end_offset)
    own = _epoch_end(held, named.leader_epoch, log_end_offset)
    if own is None:
        return min(named.end_offset, log_end_offset)
    if own.leader_epoch != named.leader_epoch:
        return own.end_offset
    return min(own.end_offset, named.end_offset)


def last_epoch(epochs: Sequence[EpochStart], log_end_offset: Offset) -> LeaderEpoch:
    """The epoch of the last record.

    An epoch that was opened and never written to does not count: no cut could take it away, so a follower that named
    it would be told to truncate for ever.
    """
    held = _with_records(epochs, log_end_offset)
    return held[-1][0] if held else NO_LEADER_EPOCH


def _with_records(epochs: Sequence[EpochStart], log_end_offset: Offset) -> Sequence[EpochStart]:
    return epochs[: bisect_left(epochs, log_end_offset, key=_start)]


def _epoch_end(epochs: Sequence[EpochStart], epoch: LeaderEpoch, log_end_offset: Offset) -> EpochEnd | None:
    """The largest epoch that is not above ``epoch``, and where it ends.

    Below the first epoch the log start has moved past it, or it was never there: it ends where the first one starts.
    """
    if not epochs:
        return None
    higher = bisect_right(epochs, epoch, key=_epoch)
    end_offset = epochs[higher][1] if higher < len(epochs) else log_end_offset
    return EpochEnd(leader_epoch=epochs[higher - 1][0] if higher else epoch, end_offset=end_offset)


def _epoch(entry: EpochStart) -> LeaderEpoch:
    return entry[0]


def _start(entry: EpochStart) -> Offset:
    return entry[1]
