"""Frames between peers: what is written is read back, and what is not a frame is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.transport.peers.errors import PeerProtocolError
from quorate.transport.peers.frames import (
    Channel,
    FrameKind,
    encode_answer,
    encode_frame,
    encode_message,
    encode_request,
    payload_parts,
    split_channel,
    split_correlation_id,
    split_kind,
)

PAYLOADS = st.lists(st.binary(max_size=50), max_size=4)


def without_length(frame: bytes) -> memoryview:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return memoryview(frame)[4:]


@given(kind=st.sampled_from(FrameKind), parts=PAYLOADS)
def test_frame_comes_back_as_it_was(kind: FrameKind, parts: list[bytes]) -> None:
    frame = without_length(b"".join(encode_frame(kind, parts)))
    read_kind, payload = split_kind(frame)

    assert read_kind is kind
    assert bytes(payload) == b"".join(parts)


@given(channel=st.sampled_from(Channel), parts=PAYLOADS)
def test_message_comes_back_as_it_was(channel: Channel, parts: list[bytes]) -> None:
    kind, body = split_kind(without_length(b"".join(encode_message(channel, parts))))
    read_channel, payload = split_channel(body)

    assert (kind, read_channel, bytes(payload)) == (FrameKind.MESSAGE, channel, b"".join(parts))


@given(correlation_id=st.integers(0, 2**64 - 1), channel=st.sampled_from(Channel), parts=PAYLOADS)
def test_request_comes_back_as_it_was(correlation_id: int, channel: Channel, parts: list[bytes]) -> None:
    kind, body = split_kind(without_length(b"".join(encode_request(correlation_id, channel, parts))))
    read_correlation_id, rest = split_correlation_id(body)
    read_channel, payload = split_channel(rest)

    assert kind is FrameKind.REQUEST
    assert (read_correlation_id, read_channel) == (correlation_id, channel)
    assert bytes(payload) == b"".join(parts)


@given(correlation_id=st.integers(0, 2**64 - 1), parts=PAYLOADS)
def test_answer_comes_back_as_it_was(correlation_id: int, parts: list[bytes]) -> None:
    kind, body = split_kind(without_length(b"".join(encode_answer(FrameKind.RESPONSE, correlation_id, parts))))
    read_correlation_id, payload = split_correlation_id(body)

    assert kind is FrameKind.RESPONSE
    assert read_correlation_id == correlation_id
    assert bytes(payload) == b"".join(parts)


def test_frame_layout_is_length_kind_correlation_id_channel_payload() -> None:
    correlation = b"\x00\x00\x00\x00\x00\x00\x00\x09"
    assert b"".join(encode_message(Channel.RAFT, [b"ab"])) == b"\x00\x00\x00\x04\x03\x01ab"
    assert b"".join(encode_request(9, Channel.KAFKA, [b"ab"])) == b"\x00\x00\x00\x0c\x04" + correlation + b"\x05ab"
    assert b"".join(encode_answer(FrameKind.RESPONSE, 9, [b"ab"])) == b"\x00\x00\x00\x0b\x05" + correlation + b"ab"


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x06rest", b"\xff"])
def test_a_channel_that_there_is_not_is_refused(body: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        split_channel(memoryview(body))


@pytest.mark.parametrize("frame", [b"", b"\x00", b"\x0a", b"\xff\x00"])
def test_unknown_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        split_kind(memoryview(frame))


def test_frame_that_ends_within_its_correlation_id_is_refused() -> None:
    with pytest.raises(PeerProtocolError):
        split_correlation_id(memoryview(b"\0" * 7))


@pytest.mark.parametrize("payload", [b"ab", bytearray(b"ab"), memoryview(b"ab"), [b"a", b"b"], (b"a", bytearray(b"b"))])
def test_payload_is_one_buffer_or_many(payload: bytes | list[bytes]) -> None:
    assert b"".join(payload_parts(payload)) == b"ab"
