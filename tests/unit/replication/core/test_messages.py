"""What leaders and followers say to each other, to bytes and back."""

from uuid import UUID

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import EpochEnd, LeaderEpoch, Offset
from quorate.replication.core.messages import (
    FetchedPartition,
    FetchPosition,
    ReplicaFetch,
    ReplicaFetchAnswer,
    decode_answer,
    decode_fetch,
    encode_answer,
    encode_fetch,
)
from quorate.transport.peers.errors import PeerProtocolError


def ask(partition: int) -> FetchPosition:
    return FetchPosition(UUID(int=7), partition, LeaderEpoch(3), Offset(40), LeaderEpoch(2), Offset(39), Offset(5))


def test_a_request_comes_back_as_it_was() -> None:
    request = ReplicaFetch(9, 12, [ask(0), ask(1)])
    assert decode_fetch(encode_fetch(request)) == request


def test_every_partition_gets_its_own_records() -> None:
    answer = ReplicaFetchAnswer(
        True,
        [
            FetchedPartition(ask(0), ErrorCode.NONE, None, Offset(5), Offset(41), memoryview(b"first")),
            FetchedPartition(ask(1), ErrorCode.NOT_LEADER_OR_FOLLOWER, None, Offset(-1), Offset(-1), memoryview(b"")),
            FetchedPartition(
                ask(2),
                ErrorCode.NONE,
                EpochEnd(leader_epoch=LeaderEpoch(2), end_offset=Offset(30)),
                Offset(5),
                Offset(39),
                memoryview(b""),
            ),
            FetchedPartition(ask(3), ErrorCode.NONE, None, Offset(5), Offset(41), memoryview(bytes(100_000))),
        ],
    )
    assert decode_answer(b"".join(encode_answer(answer))) == answer


def test_records_are_not_copied_into_the_answer() -> None:
    records = memoryview(b"records")
    answer = ReplicaFetchAnswer(False, [FetchedPartition(ask(0), ErrorCode.NONE, None, Offset(5), Offset(41), records)])
    assert encode_answer(answer)[-1] is records


def test_what_is_nested_too_deeply_is_refused_as_malformed() -> None:
    nested = b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(PeerProtocolError):
        decode_fetch(b"\x94\x01\x01\x90" + nested)
    head = b"\x93\xc3\x90" + nested
    with pytest.raises(PeerProtocolError):
        decode_answer(len(head).to_bytes(4) + head)
