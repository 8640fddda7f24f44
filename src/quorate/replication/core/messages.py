"""What a follower asks its leaders, and what they answer.

An answer is a head and the records behind it, as they are: megabytes that nobody copies into a message, or out of one.

Requests of one session add up: each names only the partitions that are asked for anew, and an answer holds those that
there is news of, whichever request named them. A partition that was answered has to be asked for again.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception, whatever the standard library calls it
from uuid import UUID

import msgspec

from quorate.kernel.errors import UNREADABLE, ErrorCode
from quorate.kernel.ids import EpochEnd, LeaderEpoch, Offset
from quorate.kernel.ports import Buffer
from quorate.transport.peers.errors import PeerProtocolError

PartitionKey = tuple[UUID, int]


class FetchPosition(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a follower stands. The same value comes back with the answer, so that a late one is known as such."""

    topic_id: UUID
    partition: int
    leader_epoch: LeaderEpoch
    fetch_offset: Offset
    #: Of the record before ``fetch_offset``; -1 where the log is empty.
    last_fetched_epoch: LeaderEpoch
    #: What the follower knows to be committed: it is told when there is more.
    known_high_watermark: Offset
    #: Where its log starts: it is told when records were deleted, or they would be back under its leadership.
    known_log_start: Offset

    @property
    def key(self) -> PartitionKey:
        return self.topic_id, self.partition


class ReplicaFetch(msgspec.Struct, frozen=True, array_like=True):
    #: A new number forgets all that was asked for before.
    session: int
    broker_epoch: int
    partitions: list[FetchPosition]


class FetchedPartition(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The leader's answer for one partition."""

    fetch: FetchPosition
    error: ErrorCode
    #: The newest epoch that both logs may share, where the follower has to truncate first.
    diverging_epoch: EpochEnd | None
    log_start_offset: Offset  # The leader's; also with OFFSET_OUT_OF_RANGE.
    high_watermark: Offset  # The leader's.
    records: memoryview


class ReplicaFetchAnswer(msgspec.Struct, frozen=True, array_like=True):
    #: Whether the leader knows the session; if not, everything has to be asked for anew.
    is_known: bool
    partitions: list[FetchedPartition]


class _PartitionHead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    fetch: FetchPosition
    error: ErrorCode
    diverging_epoch: EpochEnd | None
    log_start_offset: Offset
    high_watermark: Offset
    records_size_bytes: int


class _AnswerHead(msgspec.Struct, frozen=True, array_like=True):
    is_known: bool
    partitions: list[_PartitionHead]


_HEAD_SIZE = Struct(">I")
_encoder = msgspec.msgpack.Encoder()
_request_decoder: msgspec.msgpack.Decoder[ReplicaFetch] = msgspec.msgpack.Decoder(ReplicaFetch)
_head_decoder: msgspec.msgpack.Decoder[_AnswerHead] = msgspec.msgpack.Decoder(_AnswerHead)


def encode_fetch(request: ReplicaFetch) -> bytes:
    return _encoder.encode(request)


def decode_fetch(payload: Buffer) -> ReplicaFetch:
    """Raises ``PeerProtocolError`` where it is none."""
    try:
        return _request_decoder.decode(payload)
    except UNREADABLE as error:
        raise PeerProtocolError(f"malformed fetch of a replica: {error}") from None


def encode_answer(answer: ReplicaFetchAnswer) -> Sequence[Buffer]:
    heads = [
        _PartitionHead(
            each.fetch,
            each.error,
            each.diverging_epoch,
            each.log_start_offset,
            each.high_watermark,
            len(each.records),
        )
        for each in answer.partitions
    ]
    head = _encoder.encode(_AnswerHead(answer.is_known, heads))
    return [_HEAD_SIZE.pack(len(head)), head, *(each.records for each in answer.partitions if each.records)]


def decode_answer(payload: Buffer) -> ReplicaFetchAnswer:
    """The records are views of the payload. Raises ``PeerProtocolError`` where it is no answer."""
    view = memoryview(payload)
    try:
        position = _HEAD_SIZE.size + int(_HEAD_SIZE.unpack_from(view)[0])
        head = _head_decoder.decode(view[_HEAD_SIZE.size : position])
    except (*UNREADABLE, StructError) as error:
        raise PeerProtocolError(f"malformed answer to a replica: {error}") from None
    partitions = []
    for each in head.partitions:
        if not 0 <= each.records_size_bytes <= len(view) - position:
            raise PeerProtocolError("malformed answer to a replica: it ends before its records")
        records = view[position : position + each.records_size_bytes]
        position += each.records_size_bytes
        partitions.append(
            FetchedPartition(
                each.fetch, each.error, each.diverging_epoch, each.log_start_offset, each.high_watermark, records
            )
        )
    return ReplicaFetchAnswer(head.is_known, partitions)
