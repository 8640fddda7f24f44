"""What a version cannot carry, what it drops, and how records pass through."""

from uuid import UUID

import pytest

from quorate.kernel.ports import Buffer
from quorate.protocol.codec import decode, encode
from quorate.protocol.errors import ProtocolError
from quorate.protocol.messages.api_versions import ApiVersionsRequest
from quorate.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest
from quorate.protocol.messages.heartbeat import HeartbeatRequest
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.messages.offset_commit import OffsetCommitRequest
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from quorate.protocol.schema import VersionedMessage


def _round_trip(message: VersionedMessage, version: int) -> VersionedMessage:
    return decode(type(message), b"".join(encode(message, version)), version)


@pytest.mark.parametrize(
    ("message", "version", "field"),
    [
        (FindCoordinatorRequest(key="k", key_type=1), 0, "key_type"),
        (FindCoordinatorRequest(coordinator_keys=("k",)), 3, "coordinator_keys"),
        (HeartbeatRequest(group_instance_id="static"), 2, "group_instance_id"),
        (ProduceRequest(transactional_id="x"), 2, "transactional_id"),
        (
            FetchRequest(topics=[FetchTopic(partitions=[FetchPartition(last_fetched_epoch=3)])]),
            11,
            "last_fetched_epoch",
        ),
        (FetchRequest(replica_id=3), 15, "replica_id"),
    ],
)
def test_value_that_the_version_cannot_carry_is_refused(message: VersionedMessage, version: int, field: str) -> None:
    with pytest.raises(ProtocolError, match=field):
        encode(message, version)


def test_ignorable_value_is_dropped_where_the_version_has_no_room() -> None:
    topic = FetchTopic(topic="t", topic_id=UUID(int=7))

    assert _round_trip(FetchRequest(topics=[topic], rack_id="eu"), 4) == FetchRequest(topics=(FetchTopic(topic="t"),))
    assert _round_trip(FetchRequest(topics=[topic]), 13) == FetchRequest(topics=(FetchTopic(topic_id=UUID(int=7)),))


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (MetadataRequest(topics=None), 0),
        (OffsetCommitRequest(group_id=None), 8),  # type: ignore[arg-type]
        (OffsetCommitRequest(topics=None), 2),  # type: ignore[arg-type]
        (ApiVersionsRequest(client_software_name=None), 3),  # type: ignore[arg-type]
    ],
)
def test_null_is_refused_where_the_version_does_not_allow_it(message: VersionedMessage, version: int) -> None:
    with pytest.raises(ProtocolError):
        encode(message, version)


@pytest.mark.parametrize(
    "message",
    [
        HeartbeatRequest(generation_id=2**31),
        HeartbeatRequest(group_id="x" * 32768),
        HeartbeatRequest(group_id="\ud800"),
        HeartbeatRequest(generation_id="1"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("version", [3, 4])
def test_value_beyond_its_type_is_refused(message: VersionedMessage, version: int) -> None:
    with pytest.raises(ProtocolError):
        encode(message, version)


@pytest.mark.parametrize("version", [-1, 5])
def test_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(ProtocolError, match=f"no version {version}"):
        encode(HeartbeatRequest(), version)
    with pytest.raises(ProtocolError, match=f"no version {version}"):
        decode(HeartbeatRequest, b"", version)


@pytest.mark.parametrize("version", [4, 12, 13])
@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_records_pass_through_uncopied_between_joined_pieces(version: int, make: type[Buffer]) -> None:
    first, second = make(b"first"), make(b"second")
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                partitions=[PartitionData(records=first), PartitionData(), PartitionData(records=second)]
            )
        ]
    )

    buffers = encode(response, version)

    assert len(buffers) == 5
    assert buffers[1] is first
    assert buffers[3] is second


def test_records_in_several_buffers_are_one_value() -> None:
    pieces: list[Buffer] = [b"one ", memoryview(b"two "), bytearray(b"three")]
    request = ProduceRequest(topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=pieces)])])

    buffers = encode(request, 9)

    assert [piece for piece in buffers if any(piece is given for given in pieces)] == pieces
    records = decode(ProduceRequest, b"".join(buffers), 9).topic_data[0].partition_data[0].records
    assert records == b"one two three"


def test_decoded_records_are_a_view_of_the_frame() -> None:
    request = ProduceRequest(topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=b"abc")])])
    frame = bytearray(b"".join(encode(request, 9)))

    records = decode(ProduceRequest, frame, 9).topic_data[0].partition_data[0].records
    frame[frame.index(b"abc")] = ord("X")

    assert records == b"Xbc"


def test_any_sequence_is_encoded_and_a_tuple_decoded() -> None:
    as_list = MetadataRequest(topics=[])

    assert _round_trip(as_list, 4) == MetadataRequest(topics=())
