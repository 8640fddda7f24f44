"""What the shard asks of the broker, and what the broker reports back.

Order matters: effects are carried out in the order they are returned. Every ``AppendRecords`` is answered by exactly
one ``AppendCommitted`` or ``AppendFailed`` that carries the same value, in the order of the appends.
"""

from typing import NewType

import msgspec

from quorate.coordination.transactions.core.commands import Command, Result
from quorate.coordination.transactions.core.transaction import Transaction
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import ProducerEpoch, ProducerId, TopicPartition, TransactionalId

# Names one request of the broker's; it comes back in the one reply to that request.
Token = NewType("Token", int)


class TransactionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record of ``__transaction_state``; without a transaction it forgets the transactional id."""

    transactional_id: TransactionalId
    transaction: Transaction | None


class TimeoutTimer(msgspec.Struct, frozen=True, kw_only=True):
    """The time to look for transactions that have outlived their timeout."""


class ExpiryTimer(msgspec.Struct, frozen=True, kw_only=True):
    """The time to look for transactional ids that nobody uses."""


class CompletionTimer(msgspec.Struct, frozen=True, kw_only=True):
    """The time to write the end of a transaction again, after a failure."""

    transactional_id: TransactionalId


TimerKey = TimeoutTimer | ExpiryTimer | CompletionTimer


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    token: Token
    result: Result


class SetTimer(msgspec.Struct, frozen=True, kw_only=True):
    """Report ``TimerFired(key)`` at ``at_ms``; replaces a timer with the same key."""

    key: TimerKey
    at_ms: int


class ReplyWhenDurable(msgspec.Struct, frozen=True, kw_only=True):
    token: Token
    command: Command  # From which the refusal is made where the append fails.
    result: Result


class AppendRecords(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Append to the shard's partition as one batch. Compared by identity: two equal appends are two appends."""

    records: tuple[TransactionRecord, ...]
    #: None: nobody waits for the append.
    then: ReplyWhenDurable | None = None


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


Effect = Reply | SetTimer | AppendRecords | SendMarkers


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


class MarkersWritten(msgspec.Struct, frozen=True, kw_only=True):
    """Every partition has its marker, or is gone."""

    markers: Markers


class LogLoaded(msgspec.Struct, frozen=True, kw_only=True):
    """All records of the partition up to its high watermark were replayed; the shard may answer now."""


class LeadershipLost(msgspec.Struct, frozen=True, kw_only=True):
    """Another node leads the partition. Nothing may be reported to this shard after it."""


Event = CommandReceived | TimerFired | AppendCommitted | AppendFailed | MarkersWritten | LogLoaded | LeadershipLost
