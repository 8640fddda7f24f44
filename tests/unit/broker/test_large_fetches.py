"""Fetches of many partitions: read in turns of the loop, and nothing that changes meanwhile goes unnoticed."""

import asyncio
from random import Random

import pytest

from quorate.kernel.ids import Offset, PartitionIndex, TopicName
from quorate.kernel.turns import SLICE_ELEMENTS
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from quorate.records.builder import build_batch
from quorate.records.record import Record
from tests.simulation.disk import SimulatedDisk
from tests.simulation.simulated_node import SimulatedClock, SimulatedNode, settle

TOPIC = "big"
PARTITIONS = 12 * SLICE_ELEMENTS
VERSION = 12


async def start() -> SimulatedNode:
    random = Random(1)
    node = SimulatedNode(SimulatedDisk(random), SimulatedClock(), random)
    await node.start()
    topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    await node.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7, CreateTopicsResponse)
    while node.has_work:
        await node.run_some_work()
    return node


def append(node: SimulatedNode, index: int) -> None:
    partition = node.node.partitions.led(TopicName(TOPIC), PartitionIndex(index))
    partition.append(memoryview(bytearray(build_batch([Record(Offset(0), 1, b"k", b"v")]))), 1)


def fetch(max_wait_ms: int) -> FetchRequest:
    partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in range(PARTITIONS)
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=10_000,
        session_epoch=-1,
        topics=[FetchTopic(topic=TOPIC, partitions=partitions)],
    )


def found(node: SimulatedNode, answer: FetchResponse) -> list[int]:
    (topic,) = answer.responses
    assert [each.partition_index for each in topic.partitions] == list(range(PARTITIONS))
    return [each.partition_index for each in topic.partitions if each.records]


def watchers(node: SimulatedNode) -> int:
    return sum(len(partition._watchers) for partition in node.node.partitions)


@pytest.mark.parametrize("max_wait_ms", [0, 60_000])
@pytest.mark.parametrize("index", [0, PARTITIONS - 1])
def test_many_partitions_are_read_in_turns(index: int, max_wait_ms: int) -> None:
    async def scenario() -> None:
        node = await start()
        append(node, index)
        await settle()
        while node.has_work:
            await node.run_some_work()
        assert found(node, await node.call(fetch(max_wait_ms), VERSION, FetchResponse)) == [index]
        assert not watchers(node)

    asyncio.run(scenario())


@pytest.mark.parametrize("index", [0, PARTITIONS - 1])
def test_what_is_written_while_the_others_are_read_is_found(index: int) -> None:
    async def scenario() -> None:
        node = await start()
        reply = node.send(fetch(60_000), VERSION)
        while not watchers(node):
            await node.run_some_work()
        assert watchers(node) < PARTITIONS
        append(node, index)
        answer = node.decode(await node.finish(reply), FetchResponse, VERSION)
        assert found(node, answer) == [index]
        assert not watchers(node)

    asyncio.run(scenario())


def test_a_fetch_whose_client_has_gone_watches_nothing() -> None:
    async def scenario() -> None:
        node = await start()
        reply = node.send(fetch(60_000), VERSION)
        while not watchers(node):
            await node.run_some_work()
        reply.cancel()
        await settle()
        assert not watchers(node)

    asyncio.run(scenario())
