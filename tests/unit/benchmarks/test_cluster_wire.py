"""The cluster benchmark's hand-written messages, held against the codec that is generated from Kafka's definitions."""

from benchmarks.cluster import admin_wire
from quorate.protocol.frames import encode_response
from quorate.protocol.messages.describe_quorum import DescribeQuorumResponse, ResponsePartitionData, ResponseTopicData
from quorate.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from quorate.protocol.schema import Response


def answer_of(response: Response, version: int) -> bytes:
    """Without its size, as a connection returns it."""
    return b"".join(encode_response(9, response, version))[4:]


def test_metadata_is_read_as_it_was_meant() -> None:
    partitions = [
        MetadataResponsePartition(partition_index=1, leader_id=100, replica_nodes=[100, 7], isr_nodes=[100]),
        MetadataResponsePartition(partition_index=0, leader_id=7, replica_nodes=[7, 100], isr_nodes=[7, 100]),
    ]
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=7, host="127.0.0.1", port=1234, rack="r")],
        cluster_id="c",
        controller_id=7,
        topics=[MetadataResponseTopic(name="t" * 200, partitions=partitions), MetadataResponseTopic(name="u")],
    )

    view = admin_wire.parse_metadata(answer_of(response, admin_wire.METADATA_VERSION))

    assert view.addresses == {7: ("127.0.0.1", 1234)}
    assert view.topics["u"] == ()
    first, second = view.topics["t" * 200]
    assert (first.index, first.leader, first.is_whole, first.has_preferred_leader) == (0, 7, True, True)
    assert (second.index, second.isr, second.is_whole) == (1, (100,), False)


def test_quorum_leader_is_read_or_unknown() -> None:
    known = ResponseTopicData(
        topic_name=admin_wire.METADATA_TOPIC, partitions=[ResponsePartitionData(partition_index=0, leader_id=4001)]
    )
    version = admin_wire.DESCRIBE_QUORUM_VERSION

    assert admin_wire.quorum_leader(answer_of(DescribeQuorumResponse(topics=[known]), version)) == 4001
    assert admin_wire.quorum_leader(answer_of(DescribeQuorumResponse(error_code=5), version)) == -1
