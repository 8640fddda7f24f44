"""What happens to the leader of a partition, and what it asks of its shell.

Effects are carried out in the order they are returned. Every ``ProposeIsr`` is answered by exactly one of
``IsrChangeRefused``, ``IsrChangeOutdated`` and ``IsrChangeUnanswered``, which carry it back, or by nothing if it was
accepted: then the committed record arrives as ``MembershipChanged``.
"""

import msgspec

from quorate.kernel.ids import BrokerEpoch, LeaderEpoch, NodeId, Offset
from quorate.metadata.core.commands import IsrMember


class PartitionMembership(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The replicas of a partition and those in sync, as a committed record has them."""

    replicas: tuple[NodeId, ...]
    isr: frozenset[NodeId]
    partition_epoch: int  # Rises with every committed change; a proposal names the one it was made from.


class ProposeIsr(msgspec.Struct, frozen=True, kw_only=True):
    """Have the controller commit this ISR, provided that both epochs are still the current ones."""

    number: int  # Counts from 1 in each leader epoch.
    isr: tuple[IsrMember, ...]  # By node id.
    leader_epoch: LeaderEpoch
    partition_epoch: int


class LeaderAppended(msgspec.Struct, frozen=True, kw_only=True):
    log_end_offset: Offset
    #: A follower that stood at the old end was caught up until now, however long ago it asked.
    now_ms: int


class LeaderDurable(msgspec.Struct, frozen=True, kw_only=True):
    """Everything before ``offset`` is synced on the leader's own disk."""

    offset: Offset


class FollowerFetched(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A follower sent a fetch that ``judge_fetch`` accepted."""

    follower: NodeId
    broker_epoch: BrokerEpoch
    fetch_offset: Offset
    now_ms: int


class MembershipChanged(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A committed record of this leader epoch was replayed."""

    membership: PartitionMembership


class LiveBrokersChanged(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The brokers that may be in sync (registered, not fenced, not shutting down), with their epochs."""

    broker_epochs: dict[NodeId, BrokerEpoch]


class IsrChangeRefused(msgspec.Struct, frozen=True, kw_only=True):
    """The controller turned this attempt down at the partition epoch it names: it will never be committed."""

    proposal: ProposeIsr


class IsrChangeOutdated(msgspec.Struct, frozen=True, kw_only=True):
    """The controller is past the epochs of the proposal: what it knows will be replayed here too."""

    proposal: ProposeIsr


class IsrChangeUnanswered(msgspec.Struct, frozen=True, kw_only=True):
    """No answer that could be believed, such as a timeout: the proposal may have been committed, or may be yet."""

    proposal: ProposeIsr


class MinInsyncReplicasChanged(msgspec.Struct, frozen=True, kw_only=True):
    min_insync_replicas: int


class TimePassed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """To be told about every half of ``replica_lag_time_max_ms``, or more often."""

    now_ms: int


LeaderEvent = (
    LeaderAppended
    | LeaderDurable
    | FollowerFetched
    | MembershipChanged
    | LiveBrokersChanged
    | IsrChangeRefused
    | IsrChangeOutdated
    | IsrChangeUnanswered
    | MinInsyncReplicasChanged
    | TimePassed
)


class HighWatermarkAdvanced(msgspec.Struct, frozen=True, kw_only=True):
    offset: Offset


LeaderEffect = HighWatermarkAdvanced | ProposeIsr
