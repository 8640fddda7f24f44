"""The metadata log has a thread of its own: what the cluster agrees on does not wait for what partitions write."""

import asyncio
from random import Random

from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.simulation.disk import SimulatedDisk
from tests.simulation.simulated_node import SimulatedClock, SimulatedNode, settle
from tests.unit.replication.replicas import produced

_VERSION = 7


def new_topic(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])


def test_a_topic_is_created_while_the_sync_of_a_partition_hangs() -> None:
    async def scenario() -> None:
        node = SimulatedNode(SimulatedDisk(Random(1)), SimulatedClock(), Random(1))
        await node.start()
        await node.call(new_topic("slow"), _VERSION, CreateTopicsResponse)
        data = TopicProduceData(name="slow", partition_data=[PartitionProduceData(index=0, records=produced(0))])
        written = node.send(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data]), 8)
        await settle()
        assert node.executor.queue, "a partition syncs"

        reply = await node.finish_without_partitions(node.send(new_topic("other"), _VERSION))

        (created,) = node.decode(reply, CreateTopicsResponse, _VERSION).topics
        assert created.error_code == ErrorCode.NONE
        assert not written.done()
        await node.finish(written)
        await node.stop()

    asyncio.run(scenario())
