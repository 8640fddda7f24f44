"""Frames that lie about lengths, counts, tags and text: each is refused with one kind of error."""

import pytest

from quorate.protocol.codec import decode, decode_versioned, encode
from quorate.protocol.errors import ProtocolError
from quorate.protocol.messages.api_versions import ApiVersionsRequest
from quorate.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from quorate.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from quorate.protocol.messages.create_topics import CreateTopicsRequest
from quorate.protocol.messages.fetch import FetchRequest
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from quorate.protocol.schema import VersionedMessage

HUGE_COMPACT = "ff ff ff ff 07"
BEFORE_TOPICS_OF_FETCH_12 = "ffffffff 000001f4 00000001 7fffffff 00 00000000 ffffffff"


@pytest.mark.parametrize(
    ("message_type", "version", "frame"),
    [
        pytest.param(MetadataRequest, 1, "7fffffff", id="huge count in a tiny frame"),
        pytest.param(MetadataRequest, 9, HUGE_COMPACT, id="huge compact count in a tiny frame"),
        pytest.param(MetadataRequest, 1, "00000002 0001 61", id="count above what the rest can hold"),
        pytest.param(FetchRequest, 12, f"{BEFORE_TOPICS_OF_FETCH_12} 03 0161", id="compact count above the rest"),
        pytest.param(MetadataRequest, 1, "fffffffe", id="negative count that is not null"),
        pytest.param(MetadataRequest, 0, "ffffffff", id="null array where it is not allowed"),
        pytest.param(CreateTopicsRequest, 2, "ffffffff 00000000 00", id="null array of topics to create"),
        pytest.param(CreateTopicsRequest, 5, "00 00000000 00 00", id="null compact array of topics to create"),
        pytest.param(MetadataRequest, 1, "00000001 ffff", id="null string where it is not allowed"),
        pytest.param(MetadataRequest, 1, "00000001 fffe", id="negative string length"),
        pytest.param(MetadataRequest, 1, "00000001 7fff 61", id="string beyond the frame"),
        pytest.param(MetadataRequest, 1, "00000001 0001 ff", id="string that is not UTF-8"),
        pytest.param(MetadataRequest, 1, "00000001 0003 eda080", id="string with a surrogate"),
        pytest.param(ApiVersionsRequest, 3, "00 02 31 00", id="null compact string where it is not allowed"),
        pytest.param(ApiVersionsRequest, 3, f"{HUGE_COMPACT} 61", id="compact string beyond the frame"),
        pytest.param(ApiVersionsRequest, 3, "81 80 80 80 80 00 01 00", id="varint of six bytes"),
        pytest.param(ApiVersionsRequest, 3, "ff ff ff ff 7f", id="varint above 32 bits"),
        pytest.param(ApiVersionsRequest, 3, "80", id="varint that does not end"),
        pytest.param(SaslAuthenticateRequest, 0, "7fffffff 61", id="bytes beyond the frame"),
        pytest.param(SaslAuthenticateRequest, 0, "ffffffff", id="null bytes where they are not allowed"),
        pytest.param(SaslAuthenticateRequest, 2, f"{HUGE_COMPACT} 61", id="compact bytes beyond the frame"),
        pytest.param(ApiVersionsRequest, 3, "01 01 01 05 7f 61", id="unknown tagged field beyond the frame"),
        pytest.param(ApiVersionsRequest, 3, f"01 01 {HUGE_COMPACT}", id="huge count of tagged fields"),
        pytest.param(ApiVersionsRequest, 3, "01 01 02 05 00 05 00", id="tag twice"),
        pytest.param(ApiVersionsRequest, 3, "01 01 02 06 00 05 00", id="tags out of order"),
        pytest.param(
            FetchRequest, 12, f"{BEFORE_TOPICS_OF_FETCH_12} 01 01 01 01 00 03 02 61", id="tagged field ends too early"
        ),
        pytest.param(
            FetchRequest, 12, f"{BEFORE_TOPICS_OF_FETCH_12} 01 01 01 01 00 01 02 61", id="tagged field ends too late"
        ),
        pytest.param(
            ConsumerGroupHeartbeatResponse,
            0,
            "00000000 0000 00 00 00000000 00000000 02 01 00 00",
            id="struct neither null nor there",
        ),
        pytest.param(ApiVersionsRequest, 0, "00", id="byte after the end"),
        pytest.param(ApiVersionsRequest, 3, "01 01 00 00", id="byte after the tags"),
        pytest.param(MetadataRequest, 9, "", id="empty frame"),
    ],
)
def test_is_refused(message_type: type[VersionedMessage], version: int, frame: str) -> None:
    with pytest.raises(ProtocolError):
        decode(message_type, bytes.fromhex(frame), version)


def test_string_that_kafka_would_not_take_is_refused() -> None:
    longest = ApiVersionsRequest(client_software_name="x" * 32767)
    frame = b"".join(encode(longest, 3))
    # The length 32768, compact: one more as a varint of three bytes, as before.
    longer = b"\x81\x80\x02" + frame[3 : 3 + 32767] + b"x" + frame[3 + 32767 :]

    assert decode(ApiVersionsRequest, frame, 3) == longest
    with pytest.raises(ProtocolError, match="client_software_name"):
        decode(ApiVersionsRequest, longer, 3)


def test_unknown_tagged_fields_are_skipped() -> None:
    request = ApiVersionsRequest(client_software_name="q", client_software_version="1")

    assert decode(ApiVersionsRequest, bytes.fromhex("02 71 02 31 02 05 01 aa 85 01 02 bb cc"), 3) == request


def test_unknown_tagged_field_among_known_ones_is_skipped() -> None:
    frame = bytes.fromhex(f"{BEFORE_TOPICS_OF_FETCH_12} 01 01 01 02 00 02 02 61 09 01 ff")

    assert decode(FetchRequest, frame, 12).cluster_id == "a"


def test_error_names_the_field_whose_length_is_wrong() -> None:
    with pytest.raises(ProtocolError, match=r"MetadataRequest\.topics\.name"):
        decode(MetadataRequest, bytes.fromhex("00000001 7fff 61"), 1)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff", b"\x00\x00"])
def test_message_without_a_known_version_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_versioned(ConsumerProtocolSubscription, data)
