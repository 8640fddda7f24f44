"""What a follower asks its leaders, and what they answer. Pure.

Requests of one session add up: each names only the partitions that are asked for anew, and an answer holds those that
there is news of, whichever request named them. A partition that was answered has to be asked for again.
"""

from uuid import UUID

import msgspec

from quorate.kernel.disk import Buffer

PartitionKey = tuple[UUID, int]


class Ask(msgspec.Struct, frozen=True, array_like=True):
    topic_id: UUID
    partition: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    #: What the follower knows to be committed: it is told when there is more.
    known_high_watermark: int
    #: Where its log starts: it is told when records were deleted, or they would be back under its leadership.
    known_log_start: int

    @property
    def key(self) -> PartitionKey:
        return self.topic_id, self.partition


class ReplicaFetch(msgspec.Struct, frozen=True, array_like=True):
    #: A new number forgets all that was asked for before.
    session: int
    broker_epoch: int
    asks: list[Ask]


class Given(msgspec.Struct, frozen=True, array_like=True):
    """The answer for one partition; ``ask`` comes back as it was, so that a late answer is known as such."""

    ask: Ask
    error_code: int
    #: Epoch and end offset, where the follower has to truncate first.
    diverging: tuple[int, int] | None
    log_start_offset: int
    high_watermark: int
    records: memoryview


class ReplicaFetchAnswer(msgspec.Struct, frozen=True, array_like=True):
    #: Whether the leader knows the session; if not, everything has to be asked for anew.
    is_known: bool
    given: list[Given]


_encoder = msgspec.msgpack.Encoder()
_request_decoder: msgspec.msgpack.Decoder[ReplicaFetch] = msgspec.msgpack.Decoder(ReplicaFetch)
_answer_decoder: msgspec.msgpack.Decoder[ReplicaFetchAnswer] = msgspec.msgpack.Decoder(ReplicaFetchAnswer)


def encode(message: ReplicaFetch | ReplicaFetchAnswer) -> bytes:
    return _encoder.encode(message)


def decode_fetch(payload: Buffer) -> ReplicaFetch:
    return _request_decoder.decode(payload)


def decode_answer(payload: Buffer) -> ReplicaFetchAnswer:
    return _answer_decoder.decode(payload)
