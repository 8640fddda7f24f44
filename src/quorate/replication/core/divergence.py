"""Where two logs of one partition part, and how far a follower must cut its own (KIP-101, KIP-279, KIP-595).

A log's epochs are a list of (leader epoch, offset where it starts), both rising strictly. Two logs that agree on the
epoch of a record at an offset agree on everything before it, so comparing epochs is comparing content.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from quorate.kernel.ids import NO_LEADER_EPOCH, EpochEnd, LeaderEpoch, Offset

EpochStart = tuple[LeaderEpoch, Offset]


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
