"""What a node may ask for when it repairs a log."""

from uuid import UUID

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.replication.integrity.range_reads import (
    ReadRange,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
)
from quorate.transport.peers.errors import PeerProtocolError


def test_a_request_and_its_answer_come_back_as_they_were() -> None:
    request = ReadRange(topic_id=UUID(int=7), partition=3, first_offset=5, end_offset=9)
    assert decode_request(encode_request(request)) == request
    answer = b"".join(bytes(part) for part in encode_answer(ErrorCode.CORRUPT_MESSAGE))
    assert decode_answer(memoryview(answer)) == (ErrorCode.CORRUPT_MESSAGE, b"")
    answer = b"".join(bytes(part) for part in encode_answer(ErrorCode.NONE, b"records"))
    assert decode_answer(memoryview(answer)) == (ErrorCode.NONE, b"records")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        b"\xc1",
        encode_request(ReadRange(topic_id=UUID(int=7), partition=3, first_offset=9, end_offset=5)),
        encode_request(ReadRange(topic_id=UUID(int=7), partition=3, first_offset=-1, end_offset=5)),
        encode_request(ReadRange(topic_id=UUID(int=7), partition=-1, first_offset=1, end_offset=5)),
        encode_request(ReadRange(topic_id=UUID(int=7), partition=0, first_offset=1, end_offset=2**63)),
    ],
)
def test_what_no_sound_node_asks_ends_its_connection(request_bytes: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        decode_request(request_bytes)


@pytest.mark.parametrize("answer", [b"", b"\x00", b"\x7f\xff"])
def test_what_is_no_answer_is_told(answer: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        decode_answer(memoryview(answer))
