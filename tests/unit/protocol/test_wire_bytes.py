"""Bytes worked out by hand from the protocol's description, so that both directions cannot be wrong together."""

from uuid import UUID

import pytest

from quorate.protocol.codec import decode, encode
from quorate.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from quorate.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from quorate.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from quorate.protocol.schema import VersionedMessage

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text)


CASES: list[tuple[str, VersionedMessage, int, bytes]] = [
    ("no fields", ApiVersionsRequest(), 0, b""),
    (
        "compact strings and empty tags",
        ApiVersionsRequest(client_software_name="q", client_software_version="1"),
        3,
        _bytes("02 71 02 31 00"),
    ),
    (
        "array of structs",
        ApiVersionsResponse(api_keys=(ApiVersion(api_key=18, min_version=0, max_version=3),)),
        0,
        _bytes("0000 00000001 0012 0000 0003"),
    ),
    (
        "flexible array of structs, each with its tags",
        ApiVersionsResponse(api_keys=(ApiVersion(api_key=18, min_version=0, max_version=3),), throttle_time_ms=1),
        3,
        _bytes("0000 02 0012 0000 0003 00 00000001 00"),
    ),
    ("null array", MetadataRequest(topics=None), 1, _bytes("ffffffff")),
    ("null compact array", MetadataRequest(topics=None), 9, _bytes("00 01 00 00 00")),
    (
        "array of strings in structs",
        MetadataRequest(topics=(MetadataRequestTopic(name="ab"),), allow_auto_topic_creation=False),
        4,
        _bytes("00000001 0002 6162 00"),
    ),
    (
        "null string and topic id",
        MetadataRequest(topics=(MetadataRequestTopic(topic_id=TOPIC_ID, name=None),)),
        12,
        _bytes("02 00112233445566778899aabbccddeeff 00 00 01 00 00"),
    ),
    (
        "records, classic",
        ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=(TopicProduceData(name="t", partition_data=(PartitionProduceData(index=7, records=b"abc"),)),),
        ),
        3,
        _bytes("ffff ffff 000003e8 00000001 0001 74 00000001 00000007 00000003 616263"),
    ),
    (
        "records, flexible and null",
        ProduceRequest(
            transactional_id="x",
            acks=1,
            timeout_ms=2,
            topic_data=(TopicProduceData(name="t", partition_data=(PartitionProduceData(index=7, records=None),)),),
        ),
        9,
        _bytes("02 78 0001 00000002 02 02 74 02 00000007 00 00 00 00"),
    ),
    (
        "tagged struct, tagged array and nullable string",
        ProduceResponse(
            responses=(
                TopicProduceResponse(
                    name="t",
                    partition_responses=(
                        PartitionProduceResponse(
                            index=1,
                            error_code=6,
                            base_offset=-1,
                            record_errors=(BatchIndexAndErrorMessage(batch_index=2),),
                            error_message="no",
                            current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=4),
                        ),
                    ),
                ),
            ),
        ),
        10,
        _bytes(
            "02 02 74 02"
            "00000001 0006 ffffffffffffffff ffffffffffffffff ffffffffffffffff"
            "02 00000002 00 00"
            "03 6e6f"
            "01 00 09 00000003 00000004 00"
            "00 00000000 00"
        ),
    ),
    (
        "topic id instead of name, tagged values left at their defaults",
        FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            topics=(FetchTopic(topic_id=TOPIC_ID, partitions=(FetchPartition(partition=1, fetch_offset=5),)),),
        ),
        17,
        _bytes(
            "000001f4 00000001 7fffffff 00 00000000 ffffffff"
            "02 00112233445566778899aabbccddeeff"
            "02 00000001 ffffffff 0000000000000005 ffffffff ffffffffffffffff 00000000 00"
            "00 01 01 00"
        ),
    ),
    (
        "null struct",
        ConsumerGroupHeartbeatResponse(heartbeat_interval_ms=1, assignment=None),
        0,
        _bytes("00000000 0000 00 00 00000000 00000001 ff 00"),
    ),
    (
        "struct that may be null, and array of integers",
        ConsumerGroupHeartbeatResponse(
            assignment=Assignment(topic_partitions=(ResponseTopicPartitions(topic_id=TOPIC_ID, partitions=(1, 2)),))
        ),
        0,
        _bytes(
            "00000000 0000 00 00 00000000 0000000001 02 00112233445566778899aabbccddeeff 03 00000001 00000002 00 0000"
        ),
    ),
]
IDS = [f"{name} ({type(message).__name__} {version})" for name, message, version, _ in CASES]


@pytest.mark.parametrize(("_name", "message", "version", "expected"), CASES, ids=IDS)
def test_encodes_to(_name: str, message: VersionedMessage, version: int, expected: bytes) -> None:
    assert b"".join(encode(message, version)) == expected


@pytest.mark.parametrize(("_name", "message", "version", "encoded"), CASES, ids=IDS)
def test_decodes_from(_name: str, message: VersionedMessage, version: int, encoded: bytes) -> None:
    assert decode(type(message), encoded, version) == message
