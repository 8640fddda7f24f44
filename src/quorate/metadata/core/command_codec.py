"""Commands and their answers as bytes, for the way to the quorum leader and back."""

from collections.abc import Sequence

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset
from quorate.metadata.core.commands import Command
from quorate.metadata.core.decisions import Answer


class _Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Either an answer, or the error that refuses the command."""

    answer: Answer | None = None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


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


def encode_outcomes(outcomes: Sequence[Answer | KafkaError], version: Offset) -> bytes:
    """The records of a decision stay behind: they reach every node through the metadata log."""
    return _encoder.encode(_Outcomes(version=version, outcomes=[_outcome(outcome) for outcome in outcomes]))


def decode_outcomes(payload: bytes) -> tuple[list[Answer | KafkaError], Offset]:
    decoded = _outcome_decoder.decode(payload)
    return [_answer_or_error(outcome) for outcome in decoded.outcomes], decoded.version


def _outcome(outcome: Answer | KafkaError) -> _Outcome:
    if isinstance(outcome, KafkaError):
        return _Outcome(error=outcome.code, message=outcome.message)
    return _Outcome(
        answer=Answer(
            topic=outcome.topic,
            producer_id=outcome.producer_id,
            broker_epoch=outcome.broker_epoch,
            partitions=outcome.partitions,
        )
    )


def _answer_or_error(outcome: _Outcome) -> Answer | KafkaError:
    return KafkaError(outcome.error, outcome.message) if outcome.answer is None else outcome.answer
