"""What a shard asks of the node that runs it, and what the node reports back.

Order matters: effects are carried out in the order they are returned. Every ``AppendToLog`` is answered by exactly
one ``AppendCommitted`` or ``AppendFailed`` that carries the same value, in the order of the appends.
"""

from typing import Generic, NamedTuple, NewType, TypeVar

import msgspec

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import ProducerEpoch, ProducerId
from quorate.records.control import TransactionEnd

CommandT_co = TypeVar("CommandT_co", covariant=True)
ResultT_co = TypeVar("ResultT_co", covariant=True)
RecordT_co = TypeVar("RecordT_co", covariant=True)
ThenT_co = TypeVar("ThenT_co", covariant=True)
TimerT_co = TypeVar("TimerT_co", covariant=True)
AppendT_co = TypeVar("AppendT_co", covariant=True)

#: Names one request; it comes back in the one reply to it.
Token = NewType("Token", int)


class TransactionalProducer(NamedTuple):
    """The producer in whose transaction records are written."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class Reply(msgspec.Struct, Generic[ResultT_co], frozen=True, kw_only=True):
    token: Token
    result: ResultT_co


class ReplyWhenDurable(msgspec.Struct, Generic[CommandT_co, ResultT_co], frozen=True, kw_only=True):
    token: Token
    command: CommandT_co  # The refusal is made from it if the append fails.
    result: ResultT_co


class SetTimer(msgspec.Struct, Generic[TimerT_co], frozen=True, kw_only=True):
    """Report ``TimerFired(key)`` at ``at_ms``; replaces a timer with the same key."""

    key: TimerT_co
    at_ms: int


class CancelTimer(msgspec.Struct, Generic[TimerT_co], frozen=True, kw_only=True):
    key: TimerT_co


class AppendToLog(msgspec.Struct, Generic[RecordT_co, ThenT_co], frozen=True, kw_only=True, eq=False):
    """Append to the shard's partition as one batch. Compared by identity: two equal appends are two appends."""

    records: tuple[RecordT_co, ...]
    #: What the shard does once the append is committed, or has failed.
    then: ThenT_co
    transaction: TransactionalProducer | None = None  # The one that the records are part of.
    end: TransactionEnd | None = None  # The marker to append instead of records.


class CommandReceived(msgspec.Struct, Generic[CommandT_co], frozen=True, kw_only=True):
    token: Token
    command: CommandT_co


class TimerFired(msgspec.Struct, Generic[TimerT_co], frozen=True, kw_only=True):
    key: TimerT_co


class AppendCommitted(msgspec.Struct, Generic[AppendT_co], frozen=True, kw_only=True):
    """The high watermark passed the records: they are state now."""

    append: AppendT_co


class AppendFailed(msgspec.Struct, Generic[AppendT_co], frozen=True, kw_only=True):
    """The records are not in the log and never will be. A slow append has not failed."""

    append: AppendT_co
    error: ErrorCode


class LogLoaded(msgspec.Struct, frozen=True, kw_only=True):
    """All records of the partition up to its high watermark were replayed; the shard may answer now."""


class LeadershipLost(msgspec.Struct, frozen=True, kw_only=True):
    """Another node leads the partition. Nothing may be reported to this shard after it."""
