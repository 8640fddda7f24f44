"""A client that reads right after the answer to its own write finds the record, where the leader alone is in sync."""

import asyncio
from random import Random

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import Offset
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from quorate.records.builder import build_batch
from quorate.records.record import Record
from quorate.transport.outbox import Reply
from tests.simulation.disk import SimulatedDisk
from tests.simulation.simulated_node import SimulatedClock, SimulatedNode, settle

TOPIC = "orders"
LATEST = -1


async def started_node() -> SimulatedNode:
    random = Random(1)
    node = SimulatedNode(SimulatedDisk(random), SimulatedClock(), random)
    await node.start()
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    await node.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    return node


def produce(node: SimulatedNode, *, acks: int, timeout_ms: int = 60_000) -> "asyncio.Future[Reply | None]":
    batch = build_batch([Record(Offset(0), 1_700_000_000_000, None, b"x")])
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
    return node.send(ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data]), 9)


async def latest_offset(node: SimulatedNode) -> int:
    """Answered without the disk: nothing is made durable meanwhile."""
    asked = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)])
    reply = await node.finish_without_partitions(node.send(ListOffsetsRequest(topics=[asked]), 7))
    return node.decode(reply, ListOffsetsResponse, 7).topics[0].partitions[0].offset


def test_a_write_with_acks_1_is_answered_when_list_offsets_tells_of_it() -> None:
    async def scenario() -> None:
        node = await started_node()
        for written in range(1, 6):
            answer = produce(node, acks=1)
            await settle()
            assert not answer.done()
            response = node.decode(await node.finish(answer), ProduceResponse, 9)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert await latest_offset(node) == written

    asyncio.run(scenario())


def test_a_write_with_acks_1_is_answered_in_time_by_a_disk_that_hangs() -> None:
    """The leader's log has it, and ``acks=1`` asks for no more: an error would make the client write it twice."""

    async def scenario() -> None:
        node = await started_node()
        reply = await node.finish_without_partitions(produce(node, acks=1, timeout_ms=1))
        response = node.decode(reply, ProduceResponse, 9)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    asyncio.run(scenario())


def test_a_write_with_acks_0_waits_for_nothing() -> None:
    async def scenario() -> None:
        node = await started_node()
        assert produce(node, acks=0).result() is None

    asyncio.run(scenario())
