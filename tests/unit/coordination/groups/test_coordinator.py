"""The shell around the group machine: loading, waiting for the disk, timers, and what a power cut leaves."""

import asyncio
import logging
from random import Random

import pytest

from quorate.coordination.core.partitioning import partition_for
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, Offset
from quorate.kernel.topic_names import CONSUMER_OFFSETS
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from quorate.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from quorate.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from quorate.records.builder import build_batch
from quorate.records.record import Record
from quorate.transport.outbox import Reply
from tests.simulation.disk import SimulatedDisk
from tests.simulation.simulated_node import SimulatedClock, SimulatedNode, settle

GROUP = "group"
TOPIC = "topic"
SEEDS = range(40)


class World:
    """A disk and the nodes that come to life on it, one after the other."""

    def __init__(self, seed: int = 1) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(self.random)
        self.clock = SimulatedClock()

    async def start_node(self) -> SimulatedNode:
        node = SimulatedNode(self.disk, self.clock, self.random)
        await node.start()
        return node

    async def first_node(self) -> SimulatedNode:
        """A node with a topic and a coordinator."""
        node = await self.start_node()
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        await node.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
        found = await node.call(FindCoordinatorRequest(key=GROUP), 3, FindCoordinatorResponse)
        assert (found.error_code, found.node_id) == (ErrorCode.NONE, 7)
        return node


async def run_all_work(node: SimulatedNode) -> None:
    await settle()
    while node.executor.queue:
        await node.run_some_work()


def commit_request(offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(group_id=GROUP, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])])


async def commit(node: SimulatedNode, offset: int) -> int:
    response = await node.call(commit_request(offset), 9, OffsetCommitResponse)
    return response.topics[0].partitions[0].error_code


def is_taken(node: SimulatedNode, reply: Reply | None) -> bool:
    """Whether the answer is no error: a commit that was refused may be lost."""
    return node.decode(reply, OffsetCommitResponse, 9).topics[0].partitions[0].error_code == ErrorCode.NONE


async def fetch(node: SimulatedNode) -> tuple[int, int]:
    """The group's error, and the committed offset."""
    topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
    reply = node.send(OffsetFetchRequest(group_id=GROUP, topics=topics), 7)
    await settle()
    response = node.decode(reply.result(), OffsetFetchResponse, 7)
    return response.error_code, response.topics[0].partitions[0].committed_offset if response.topics else -1


def test_commit_is_answered_when_the_disk_has_it_and_not_before() -> None:
    async def script() -> None:
        node = await World().first_node()
        await run_all_work(node)
        waiting = node.send(commit_request(5), 9)
        await settle()
        assert not waiting.done()
        assert await fetch(node) == (ErrorCode.NONE, -1)
        await run_all_work(node)
        assert waiting.done()
        assert await fetch(node) == (ErrorCode.NONE, 5)

    asyncio.run(script())


def test_commit_that_the_disk_refuses_is_not_acknowledged() -> None:
    async def script() -> None:
        world = World()
        node = await world.first_node()
        await run_all_work(node)
        world.disk.syncs_fail = True
        assert await commit(node, 5) == ErrorCode.NOT_COORDINATOR
        assert await fetch(node) == (ErrorCode.NONE, -1)

    asyncio.run(script())


def test_coordinator_that_loads_asks_for_patience() -> None:
    async def script() -> None:
        world = World()
        node = await world.first_node()
        assert await commit(node, 5) == ErrorCode.NONE
        await node.stop()

        node = await world.start_node()
        assert await fetch(node) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        listing = node.send(ListGroupsRequest(), 4)
        await settle()
        listed = node.decode(listing.result(), ListGroupsResponse, 4)
        assert (listed.error_code, listed.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ())
        await run_all_work(node)
        assert await fetch(node) == (ErrorCode.NONE, 5)
        listed = await node.call(ListGroupsRequest(), 4, ListGroupsResponse)
        assert [group.group_id for group in listed.groups] == [GROUP]

    asyncio.run(script())


@pytest.mark.parametrize("seed", SEEDS)
def test_acknowledged_commit_survives_a_power_cut(seed: int) -> None:
    async def script() -> None:
        world = World(seed)
        node = await world.first_node()
        sent, acknowledged = 0, -1
        for _ in range(4):
            waiting: list[tuple[int, asyncio.Future[object]]] = []
            for _ in range(world.random.randrange(1, 8)):
                sent += 1
                waiting.append((sent, node.send(commit_request(sent), 9)))  # type: ignore[arg-type]
                if world.random.random() < 0.5:
                    await node.run_some_work()
            await settle()
            answered = [(offset, reply.result()) for offset, reply in waiting if reply.done()]
            taken = [offset for offset, reply in answered if is_taken(node, reply)]  # type: ignore[arg-type]
            acknowledged = max([acknowledged, *taken])
            for _, reply in waiting:
                reply.cancel()
            world.disk.crash()
            node = await world.start_node()
            await run_all_work(node)
            error, found = await fetch(node)
            assert error == ErrorCode.NONE
            assert acknowledged <= found <= sent
            # What a restart has shown is the group's position, and must not go back at the next one.
            acknowledged = found

    asyncio.run(script())


def test_log_that_cannot_be_understood_is_not_coordinated(caplog: pytest.LogCaptureFixture) -> None:
    async def script() -> None:
        world = World()
        node = await world.first_node()
        assert await commit(node, 5) == ErrorCode.NONE
        count = len(node.node.metadata.image.topics[CONSUMER_OFFSETS].partitions)
        partition = node.node.partitions.led(CONSUMER_OFFSETS, partition_for(GroupId(GROUP), count))
        nonsense = build_batch([Record(Offset(0), 1_700_000_000_000, b"\x00\x01nonsense", b"")])
        partition.append(memoryview(bytearray(nonsense)), world.clock.now_ms())
        await run_all_work(node)
        await node.stop()

        node = await world.start_node()
        await run_all_work(node)
        assert await fetch(node) == (ErrorCode.NOT_COORDINATOR, -1)

    with caplog.at_level(logging.ERROR):
        asyncio.run(script())
    assert f"coordinator failed node=7 partition={CONSUMER_OFFSETS}-" in caplog.text


def test_group_of_an_unmade_offsets_topic_has_no_coordinator_here() -> None:
    async def script() -> None:
        node = await World().start_node()
        assert await fetch(node) == (ErrorCode.NOT_COORDINATOR, -1)

    asyncio.run(script())


def test_many_first_askers_make_one_offsets_topic() -> None:
    async def script() -> None:
        node = await World().start_node()
        request = FindCoordinatorRequest(coordinator_keys=["a", "b", "c"])
        response = await node.call(request, 4, FindCoordinatorResponse)
        assert [found.error_code for found in response.coordinators] == [ErrorCode.NONE] * 3
        assert list(node.node.metadata.image.topics) == [CONSUMER_OFFSETS]

    asyncio.run(script())
