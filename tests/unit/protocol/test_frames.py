"""Sizes and headers around messages, where flexible and classic forms are easily mixed up."""

import pytest

from quorate.protocol.apis import APIS, ApiKey
from quorate.protocol.codec import decode, encode
from quorate.protocol.errors import ProtocolError
from quorate.protocol.frames import (
    decode_request_header,
    decode_response,
    decode_response_correlation_id,
    encode_request,
    encode_response,
    encode_unsupported_api_versions,
)
from quorate.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

ALL_VERSIONS = [(api.key, v) for api in APIS.values() for v in range(api.min_version, api.max_version + 1)]


def _frame(encoded: list[bytes | bytearray | memoryview]) -> bytes:
    """The frame without its size, after checking that the size is right."""
    whole = b"".join(encoded)
    assert int.from_bytes(whole[:4]) == len(whole) - 4
    return whole[4:]


@pytest.mark.parametrize(("key", "version"), ALL_VERSIONS, ids=str)
def test_request_and_response_travel_in_every_version(key: ApiKey, version: int) -> None:
    api = APIS[key]
    frame = _frame(encode_request(77, "me", api.request_type(), version))

    header = decode_request_header(frame)

    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (key, version, 77, "me")
    assert header.is_known
    assert decode(api.request_type, frame, version, header.body_position) == api.request_type()

    answer = _frame(encode_response(77, api.response_type(), version))

    assert decode_response(api.response_type, answer, version) == (77, api.response_type())


@pytest.mark.parametrize(
    ("key", "first_flexible"),
    [
        (ApiKey.PRODUCE, 9),
        (ApiKey.FETCH, 12),
        (ApiKey.METADATA, 9),
        (ApiKey.OFFSET_COMMIT, 8),
        (ApiKey.JOIN_GROUP, 6),
        (ApiKey.DELETE_TOPICS, 4),
        (ApiKey.INIT_PRODUCER_ID, 2),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 3),
        (ApiKey.CREATE_TOPICS, 5),
    ],
)
def test_header_is_flexible_exactly_where_the_message_is(key: ApiKey, first_flexible: int) -> None:
    api = APIS[key]
    for version in range(api.min_version, api.max_version + 1):
        tags = b"\0" if version >= first_flexible else b""
        body = b"".join(encode(api.request_type(), version))
        start = key.to_bytes(2) + version.to_bytes(2) + b"\0\0\0\x05" + b"\0\x02me"

        assert _frame(encode_request(5, "me", api.request_type(), version)) == start + tags + body

        answer = b"".join(encode(api.response_type(), version))

        assert _frame(encode_response(5, api.response_type(), version)) == b"\0\0\0\x05" + tags + answer


@pytest.mark.parametrize("version", range(5))
def test_answer_to_api_versions_never_has_a_flexible_header(version: int) -> None:
    body = b"".join(encode(ApiVersionsResponse(), version))

    assert _frame(encode_response(9, ApiVersionsResponse(), version)) == b"\0\0\0\x09" + body


def test_unsupported_api_versions_is_answered_in_version_0() -> None:
    supported = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, max_version=4)], throttle_time_ms=1)

    frame = _frame(encode_unsupported_api_versions(3, supported))

    assert frame.hex(" ", 2) == "0000 0003 0023 0000 0001 0012 0000 0004"


def test_only_api_versions_can_be_answered_so() -> None:
    with pytest.raises(ProtocolError):
        encode_unsupported_api_versions(3, HeartbeatResponse())


@pytest.mark.parametrize(("key", "version"), [(18, 99), (999, 0), (-1, 0), (0, -1), (12, 5)])
@pytest.mark.parametrize("rest", [b"", b"\xff", b"\x7f\xff???"])
def test_unknown_version_keeps_the_correlation_id(key: int, version: int, rest: bytes) -> None:
    frame = key.to_bytes(2, signed=True) + version.to_bytes(2, signed=True) + b"\x01\x02\x03\x04" + rest

    header = decode_request_header(frame)

    assert not header.is_known
    assert (header.api_key, header.api_version, header.correlation_id) == (key, version, 0x01020304)


def test_client_id_may_be_null() -> None:
    frame = _frame(encode_request(1, None, HeartbeatRequest(), 4))

    assert decode_request_header(frame).client_id is None


def test_tagged_fields_of_the_header_are_skipped() -> None:
    frame = bytes.fromhex("000c 0004 00000001 0000 01 00 02 aabb") + b"".join(encode(HeartbeatRequest(), 4))

    header = decode_request_header(frame)

    assert decode(HeartbeatRequest, frame, 4, header.body_position) == HeartbeatRequest()


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param("", id="empty"),
        pytest.param("000c 0004 000000", id="shorter than a correlation id"),
        pytest.param("000c 0004 00000001", id="no client id"),
        pytest.param("000c 0004 00000001 00", id="half a length"),
        pytest.param("000c 0004 00000001 0005 6162", id="client id beyond the frame"),
        pytest.param("000c 0004 00000001 fffe 6162", id="negative client id length"),
        pytest.param("000c 0004 00000001 0001 ff 00", id="client id that is not UTF-8"),
        pytest.param("000c 0004 00000001 0000", id="no tags in a flexible header"),
        pytest.param("000c 0004 00000001 0000 01 00 7f", id="tag beyond the frame"),
    ],
)
def test_broken_request_header_is_refused(frame: str) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(bytes.fromhex(frame))


def test_broken_response_header_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode_response_correlation_id(b"\0\0\0")
    with pytest.raises(ProtocolError):
        decode_response(HeartbeatResponse, b"\0\0\0\x01", 4)


def test_records_stay_separate_buffers_in_a_frame() -> None:
    records = bytearray(b"batch")
    request = ProduceRequest(topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=records)])])

    buffers = encode_request(1, "me", request, 9)

    assert any(buffer is records for buffer in buffers)
    assert _frame(buffers)


def test_client_id_that_is_too_long_is_refused() -> None:
    with pytest.raises(ProtocolError):
        encode_request(1, "x" * 40_000, ApiVersionsRequest(), 0)
