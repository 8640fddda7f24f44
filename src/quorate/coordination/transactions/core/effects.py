"""The timers of a transaction coordinator's shard, and the markers that it has the partitions write."""

import msgspec

from quorate.coordination.core.effects import (
    AppendCommitted,
    AppendFailed,
    AppendToLog,
    CommandReceived,
    LeadershipLost,
    LogLoaded,
    Reply,
    ReplyWhenDurable,
    SetTimer,
    TimerFired,
)
from quorate.coordination.transactions.core.commands import Command, Result
from quorate.coordination.transactions.core.records import TransactionRecord
from quorate.kernel.ids import ProducerEpoch, ProducerId, TopicPartition, TransactionalId


class TimeoutTimer(msgspec.Struct, frozen=True, kw_only=True):
    """The time to look for transactions that have outlived their timeout."""


class ExpiryTimer(msgspec.Struct, frozen=True, kw_only=True):
    """The time to look for transactional ids that nobody uses."""


class CompletionTimer(msgspec.Struct, frozen=True, kw_only=True):
    """The time to write the end of a transaction again, after a failure."""

    transactional_id: TransactionalId


TimerKey = TimeoutTimer | ExpiryTimer | CompletionTimer


class Markers(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one transaction, for each of its partitions."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    commits: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int


class SendMarkers(msgspec.Struct, frozen=True, kw_only=True):
    """Have every partition write its marker, through every change of their leaders; then report ``MarkersWritten``."""

    markers: Markers


class MarkersWritten(msgspec.Struct, frozen=True, kw_only=True):
    """Every partition has its marker, or is gone."""

    markers: Markers


PendingReply = ReplyWhenDurable[Command, Result]
#: None: nobody waits for the append.
AfterAppend = PendingReply | None
Append = AppendToLog[TransactionRecord, AfterAppend]
Effect = Reply[Result] | SetTimer[TimerKey] | Append | SendMarkers
Event = (
    CommandReceived[Command]
    | TimerFired[TimerKey]
    | AppendCommitted[Append]
    | AppendFailed[Append]
    | MarkersWritten
    | LogLoaded
    | LeadershipLost
)
