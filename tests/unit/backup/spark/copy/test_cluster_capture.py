"""What a run learns of a cluster, parts of which do not answer."""

from random import Random

import pytest

from quorate.backup.planning.cluster_snapshot import TopicSelection
from quorate.backup.spark.copy.cluster_capture import capture_cluster
from quorate.client.config import ClientConfig
from quorate.client.fetch.batches import IsolationLevel
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode
from quorate.protocol.frames import RequestHeader
from quorate.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from quorate.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from quorate.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from quorate.protocol.schema import Request
from tests.unit.client.clock import FakeClock
from tests.unit.client.fake_broker import Answer, FakeCluster

TOPIC = "orders"
LATEST, EARLIEST, EARLIEST_LOCAL = -1, -2, -4
RETRY_TIMEOUT_MS = 30_000


def offsets(node_id: int, request: Request, header: RequestHeader) -> Answer:
    """Logs of 1000 offsets, of which 100 were deleted; the last transaction is open. Partition 1 never answers."""
    assert isinstance(request, ListOffsetsRequest)
    end = 1000 - request.isolation_level
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=wanted.partition_index,
                        offset=end if wanted.timestamp == LATEST else 100,
                        leader_epoch=4 if wanted.timestamp == LATEST else 1,
                        error_code=ErrorCode.LEADER_NOT_AVAILABLE if wanted.partition_index == 1 else ErrorCode.NONE,
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def configs(node_id: int, request: Request, header: RequestHeader) -> Answer:
    assert isinstance(request, DescribeConfigsRequest)
    results = [
        DescribeConfigsResult(resource_type=each.resource_type, resource_name=each.resource_name)
        for each in request.resources
    ]
    return DescribeConfigsResponse(results=results)


def sizes(node_id: int, request: Request, header: RequestHeader) -> Answer:
    assert isinstance(request, DescribeLogDirsRequest)
    topics = [
        DescribeLogDirsTopic(
            name=topic.topic,
            partitions=[
                DescribeLogDirsPartition(partition_index=index, partition_size=5_000_000) for index in topic.partitions
            ],
        )
        for topic in request.topics or ()
    ]
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(topics=topics)])


@pytest.mark.parametrize("tells_sizes", [True, False])
def test_one_dead_partition_costs_one_deadline_and_none_of_the_others(tells_sizes: bool) -> None:
    clock = FakeClock()
    with FakeCluster(7, 100) as cluster:
        cluster.leaders = {TOPIC: {0: (7, 3), 1: (100, 3), 2: (7, 3)}}
        cluster.handle(ListOffsetsRequest, offsets)
        cluster.handle(DescribeConfigsRequest, configs)
        refusal = DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        cluster.handle(DescribeLogDirsRequest, sizes if tells_sizes else lambda *question: refusal)
        config = ClientConfig(bootstrap_servers=cluster.bootstrap, retry_timeout_ms=RETRY_TIMEOUT_MS)
        with KafkaClient(config, clock=clock, random=Random(1)) as client:
            snapshot = capture_cluster(client, TopicSelection(), IsolationLevel.READ_COMMITTED, None)

    (topic,) = snapshot.topics
    first, dead, last = topic.partitions
    for alive in (first, last):
        assert (alive.log_start_offset, alive.end_offset, alive.high_watermark) == (100, 999, 1000)
        assert (alive.leader_epoch, alive.end_epoch) == (3, 4)
        assert alive.log_bytes == (5_000_000 if tells_sizes else None)
        assert alive.error is None
    assert "partition orders-1 is unavailable" in (dead.error or "")
    assert sum(clock.slept_ms) <= RETRY_TIMEOUT_MS * 1.1


def test_of_tiered_topics_it_is_known_what_the_leaders_have_on_their_disks() -> None:
    starts = {LATEST: 1000, EARLIEST: 100, EARLIEST_LOCAL: 700}

    def listed(node_id: int, request: Request, header: RequestHeader) -> Answer:
        assert isinstance(request, ListOffsetsRequest)
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=wanted.partition_index, offset=starts[wanted.timestamp]
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    def described(node_id: int, request: Request, header: RequestHeader) -> Answer:
        assert isinstance(request, DescribeConfigsRequest)
        tiered = DescribeConfigsResourceResult(name="remote.storage.enable", value="true", config_source=1)
        results = [
            DescribeConfigsResult(
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                configs=[tiered] if each.resource_name == TOPIC else [],
            )
            for each in request.resources
        ]
        return DescribeConfigsResponse(results=results)

    with FakeCluster(7) as cluster:
        cluster.leaders = {TOPIC: {0: (7, 3)}, "plain": {0: (7, 3)}}
        cluster.handle(ListOffsetsRequest, listed)
        cluster.handle(DescribeConfigsRequest, described)
        cluster.handle(DescribeLogDirsRequest, sizes)
        config = ClientConfig(bootstrap_servers=cluster.bootstrap)
        with KafkaClient(config, clock=FakeClock(), random=Random(1)) as client:
            snapshot = capture_cluster(client, TopicSelection(), IsolationLevel.READ_UNCOMMITTED, None)

    partitions = {topic.name: topic.partitions[0] for topic in snapshot.topics}
    assert {name: each.log_start_offset for name, each in partitions.items()} == {TOPIC: 100, "plain": 100}
    assert {name: each.local_log_start_offset for name, each in partitions.items()} == {TOPIC: 700, "plain": 0}
