"""The timers of a group coordinator's shard, and the effects and events that only groups have."""

from collections.abc import Mapping

import msgspec

from quorate.coordination.core.effects import (
    AppendCommitted,
    AppendFailed,
    AppendToLog,
    CancelTimer,
    CommandReceived,
    LeadershipLost,
    LogLoaded,
    Reply,
    ReplyWhenDurable,
    SetTimer,
    TimerFired,
)
from quorate.coordination.groups.core.commands import Command, Result
from quorate.coordination.groups.core.config import ConsumerGroupSettings
from quorate.coordination.groups.core.consumer.topics import ClusterTopics
from quorate.coordination.groups.core.records import CoordinatorRecord
from quorate.kernel.ids import GroupId, MemberId


class SessionTimer(msgspec.Struct, frozen=True, kw_only=True):
    """Ends a member that was not heard of, or an id that was given out and never used."""

    group_id: GroupId
    member_id: MemberId


class RebalanceTimer(msgspec.Struct, frozen=True, kw_only=True):
    """Ends the phase of a rebalance that the group is in: waiting for joins, or for syncs."""

    group_id: GroupId


class ConsumerSessionTimer(msgspec.Struct, frozen=True, kw_only=True):
    """Ends a member of a consumer group that was not heard of."""

    group_id: GroupId
    member_id: MemberId


class ConsumerRebalanceTimer(msgspec.Struct, frozen=True, kw_only=True):
    """Ends a member of a consumer group that does not do its part of a rebalance, though it is alive."""

    group_id: GroupId
    member_id: MemberId


class OffsetExpiryTimer(msgspec.Struct, frozen=True, kw_only=True):
    """The time to look for offsets that are past their retention."""


TimerKey = SessionTimer | RebalanceTimer | ConsumerSessionTimer | ConsumerRebalanceTimer | OffsetExpiryTimer


class FinishRebalance(msgspec.Struct, frozen=True, kw_only=True):
    """Hand out the assignments of this generation, unless the group has moved on meanwhile."""

    group_id: GroupId
    generation: int


class TopicsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster's metadata has another version; consumer groups look at it with the next heartbeat."""

    topics: ClusterTopics


class GroupSettingsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """Some consumer groups have settings of their own; these replace all that there were."""

    settings: Mapping[GroupId, ConsumerGroupSettings]


PendingReply = ReplyWhenDurable[Command, Result]
#: None: nobody waits for the append.
AfterAppend = PendingReply | FinishRebalance | None
Append = AppendToLog[CoordinatorRecord, AfterAppend]
Effect = Reply[Result] | SetTimer[TimerKey] | CancelTimer[TimerKey] | Append
Event = (
    CommandReceived[Command]
    | TimerFired[TimerKey]
    | AppendCommitted[Append]
    | AppendFailed[Append]
    | LogLoaded
    | TopicsChanged
    | GroupSettingsChanged
    | LeadershipLost
)
