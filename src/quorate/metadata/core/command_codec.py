"""Commands and their answers as bytes, for the way to the quorum leader and back."""

from collections.abc import Sequence
from typing import TypeVar, assert_never

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError, ThrottlingError
from quorate.kernel.ids import BrokerEpoch, Offset, ProducerId
from quorate.metadata.core import commands as c
from quorate.metadata.core.commands import Command
from quorate.metadata.core.decisions import (
    AcceptedRegistration,
    Answer,
    CarriedOut,
    CreatedTopic,
    DeletedAcls,
    GrantedToken,
    Outcomes,
    PartitionOutcome,
    PartitionOutcomes,
    ProducerIdBlock,
    TokenExpiry,
)
from quorate.metadata.core.image import Topic
from quorate.metadata.core.security_commands import (
    CreateDelegationToken,
    DeleteAcls,
    ExpireDelegationToken,
    RenewDelegationToken,
)
from quorate.security.acls import Acl
from quorate.security.delegation_token import DelegationToken

Field = TypeVar("Field")


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Every answer, as nodes of all versions have it."""

    topic: Topic | None = None
    producer_id: ProducerId | None = None
    broker_epoch: BrokerEpoch | None = None
    partitions: tuple[PartitionOutcome, ...] = ()
    acls: tuple[Acl, ...] = ()
    token: DelegationToken | None = None
    expires_ms: int | None = None
    #: Not said where there is none.
    throttle_time_ms: int | msgspec.UnsetType = msgspec.UNSET


class _Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Either an answer, or the error that refuses the command."""

    answer: _Answer | None = None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    #: Of THROTTLING_QUOTA_EXCEEDED.
    throttle_time_ms: int | msgspec.UnsetType = msgspec.UNSET


class _Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    #: The version of the image that shows the results; the submitting node waits until its own image has it.
    version: Offset
    outcomes: list[_Outcome]


_encoder = msgspec.msgpack.Encoder()
_command_decoder: msgspec.msgpack.Decoder[list[Command]] = msgspec.msgpack.Decoder(list[Command])
_outcome_decoder = msgspec.msgpack.Decoder(_Outcomes)


def encode_commands(commands: Sequence[Command]) -> bytes:
    return _encoder.encode(commands)


def decode_commands(payload: bytes) -> list[Command]:
    return _command_decoder.decode(payload)


def encode_outcomes(outcomes: Outcomes, version: Offset) -> bytes:
    """The records of a decision stay behind: they reach every node through the metadata log."""
    return _encoder.encode(_Outcomes(version=version, outcomes=[_encoded(outcome) for outcome in outcomes]))


def decode_outcomes(payload: bytes, commands: Sequence[Command]) -> tuple[Outcomes, Offset]:
    """The outcomes of these commands."""
    decoded = _outcome_decoder.decode(payload)
    pairs = zip(commands, decoded.outcomes, strict=True)
    return [_decoded(command, outcome) for command, outcome in pairs], decoded.version


def _encoded(outcome: Answer | KafkaError) -> _Outcome:
    match outcome:
        case ThrottlingError(throttle_time_ms=throttle_time_ms):
            return _Outcome(error=ErrorCode.THROTTLING_QUOTA_EXCEEDED, throttle_time_ms=throttle_time_ms)
        case KafkaError(code=code, message=message):
            return _Outcome(error=code, message=message)
        case CreatedTopic(topic=topic, throttle_time_ms=throttle_time_ms):
            return _Outcome(answer=_Answer(topic=topic, throttle_time_ms=throttle_time_ms or msgspec.UNSET))
        case ProducerIdBlock(first=first):
            return _Outcome(answer=_Answer(producer_id=first))
        case AcceptedRegistration(broker_epoch=broker_epoch):
            return _Outcome(answer=_Answer(broker_epoch=broker_epoch))
        case PartitionOutcomes(partitions=partitions):
            return _Outcome(answer=_Answer(partitions=partitions))
        case DeletedAcls(acls=acls):
            return _Outcome(answer=_Answer(acls=acls))
        case GrantedToken(token=token):
            return _Outcome(answer=_Answer(token=token))
        case TokenExpiry(expires_ms=expires_ms):
            return _Outcome(answer=_Answer(expires_ms=expires_ms))
        case CarriedOut(throttle_time_ms=throttle_time_ms):
            return _Outcome(answer=_Answer(throttle_time_ms=throttle_time_ms or msgspec.UNSET))
        case _:
            assert_never(outcome)


def _decoded(command: Command, outcome: _Outcome) -> Answer | KafkaError:
    answer = outcome.answer
    if answer is None:
        if outcome.error is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            return ThrottlingError(outcome.throttle_time_ms or 0)
        return KafkaError(outcome.error, outcome.message)
    match command:
        case c.CreateTopic():
            return CreatedTopic(_given(answer.topic), answer.throttle_time_ms or 0)
        case c.AllocateProducerIds():
            return ProducerIdBlock(_given(answer.producer_id))
        case c.RegisterBroker():
            return AcceptedRegistration(_given(answer.broker_epoch))
        case (
            c.AlterIsr()
            | c.ElectLeaders()
            | c.AlterPartitionReassignments()
            | c.DrainBroker()
            | c.RebalancePartitions()
        ):
            return PartitionOutcomes(answer.partitions)
        case DeleteAcls():
            return DeletedAcls(answer.acls)
        case CreateDelegationToken():
            return GrantedToken(_given(answer.token))
        case RenewDelegationToken() | ExpireDelegationToken():
            return TokenExpiry(_given(answer.expires_ms))
        case _:
            return CarriedOut(answer.throttle_time_ms or 0)


def _given(field: Field | None) -> Field:
    if field is None:
        raise msgspec.ValidationError("an answer without what its command asks for")
    return field
