"""What the shard asks of the broker, and what the broker reports back.

Order matters: effects are carried out in the order they are returned. Every ``AppendRecords`` is answered by exactly
one ``AppendCommitted`` or ``AppendFailed`` that carries the same value, in the order of the appends.
"""

from collections.abc import Mapping
from typing import NewType

import msgspec

from quorate.coordination.groups.core.commands import Command, Result
from quorate.coordination.groups.core.consumer.settings import ConsumerGroupSettings
from quorate.coordination.groups.core.consumer.topics import ClusterTopics
from quorate.coordination.groups.core.records import CoordinatorRecord
from quorate.coordination.groups.core.transactional_offsets import TransactionalProducer
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, MemberId
from quorate.records.control import TransactionEnd

# Names one request of the broker's; it comes back in the one reply to that request.
Token = NewType("Token", int)


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


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    token: Token
    result: Result


class SetTimer(msgspec.Struct, frozen=True, kw_only=True):
    """Report ``TimerFired(key)`` at ``at_ms``; replaces a timer with the same key."""

    key: TimerKey
    at_ms: int


class CancelTimer(msgspec.Struct, frozen=True, kw_only=True):
    key: TimerKey


class ReplyWhenDurable(msgspec.Struct, frozen=True, kw_only=True):
    token: Token
    command: Command  # From which the refusal is made where the append fails.
    result: Result


class FinishRebalance(msgspec.Struct, frozen=True, kw_only=True):
    """Hand out the assignments of this generation, unless the group has moved on meanwhile."""

    group_id: GroupId
    generation: int


# None: nobody waits for the append.
AfterAppend = ReplyWhenDurable | FinishRebalance | None


class AppendRecords(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Append to the shard's partition as one batch. Compared by identity: two equal appends are two appends."""

    records: tuple[CoordinatorRecord, ...]
    then: AfterAppend
    transaction: TransactionalProducer | None = None  # That the records are part of.
    end: TransactionEnd | None = None  # The marker to append instead of records.


Effect = Reply | SetTimer | CancelTimer | AppendRecords


class CommandReceived(msgspec.Struct, frozen=True, kw_only=True):
    token: Token
    command: Command


class TimerFired(msgspec.Struct, frozen=True, kw_only=True):
    key: TimerKey


class AppendCommitted(msgspec.Struct, frozen=True, kw_only=True):
    """The high watermark passed the records: they are state now."""

    append: AppendRecords


class AppendFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The records are not in the log and never will be. A slow append has not failed."""

    append: AppendRecords
    error: ErrorCode


class LogLoaded(msgspec.Struct, frozen=True, kw_only=True):
    """All records of the partition up to its high watermark were replayed; the shard may answer now."""


class TopicsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster's metadata has another version; consumer groups look at it with the next heartbeat."""

    topics: ClusterTopics


class GroupSettingsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """Some consumer groups have settings of their own; these replace all that there were."""

    settings: Mapping[GroupId, ConsumerGroupSettings]


class LeadershipLost(msgspec.Struct, frozen=True, kw_only=True):
    """Another node leads the partition. Nothing may be reported to this shard after it."""


Event = (
    CommandReceived
    | TimerFired
    | AppendCommitted
    | AppendFailed
    | LogLoaded
    | TopicsChanged
    | GroupSettingsChanged
    | LeadershipLost
)
