"""ListOffsets by time: records are opened by a worker, one batch at a time, and nobody waits for it."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import Offset, PartitionIndex, TopicName
from quorate.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from quorate.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quorate.records.batch import Compression
from quorate.records.builder import build_batch
from quorate.records.record import Record
from quorate.replication.partition import Partition
from tests.simulation.disk import SimulatedDisk
from tests.simulation.simulated_node import SimulatedClock, SimulatedNode, settle
from tests.turn_meter import TurnMeter, spare_workers, yardstick_s

TOPIC = "topic"
VERSION = 9
NOW_MS = 1_700_000_000_000
MAX_TIMESTAMP = -3
MIB = 1024 * 1024
#: Some 20 ms, where the yardstick is 5 ms.
MOST_YARDSTICKS = 4

Scenario = Callable[["World"], Awaitable[None]]


class World:
    def __init__(self, node: SimulatedNode) -> None:
        self.node = node

    async def write(self, batch: bytes) -> None:
        self.partition().append(memoryview(bytearray(batch)), NOW_MS)
        await settle()
        while self.node.has_work:
            await self.node.run_some_work()

    def ask(self, *timestamps: int) -> "asyncio.Future[object]":
        partitions = [ListOffsetsPartition(partition_index=0, timestamp=timestamp) for timestamp in timestamps]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)])
        return self.node.send(request, VERSION)  # type: ignore[return-value]

    async def answers(self, *timestamps: int) -> list[ListOffsetsPartitionResponse]:
        reply = await self.node.finish(self.ask(*timestamps))
        (topic,) = self.node.decode(reply, ListOffsetsResponse, VERSION).topics
        return list(topic.partitions)

    def partition(self) -> Partition:
        return self.node.node.partitions.led(TopicName(TOPIC), PartitionIndex(0))


async def start(**configs: str) -> World:
    random = Random(1)
    node = SimulatedNode(SimulatedDisk(random), SimulatedClock(), random)
    await node.start()
    named = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, configs=named)
    await node.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    while node.has_work:
        await node.run_some_work()
    return World(node)


def play(scenario: Scenario, **configs: str) -> None:
    async def run() -> None:
        await scenario(await start(**configs))

    asyncio.run(run())


def batch_of(*timestamps: int, value: bytes = b"v", codec: Compression = Compression.ZSTD) -> bytes:
    records = [Record(Offset(n), timestamp, b"k", value) for n, timestamp in enumerate(timestamps)]
    return build_batch(records, compression=codec)


@pytest.mark.parametrize("timestamp", [NOW_MS + 7, MAX_TIMESTAMP])
def test_no_record_is_opened_before_a_worker_opens_it(timestamp: int) -> None:
    async def scenario(world: World) -> None:
        await world.write(batch_of(*range(NOW_MS, NOW_MS + 8)))
        reply = world.ask(timestamp)
        await settle()
        assert not reply.done()
        assert len(world.node.executor.queue) == 1

        (answer,) = await world.answers(timestamp)
        assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.NONE, 7, NOW_MS + 7)

    play(scenario)


def test_one_batch_after_the_other_is_opened_whoever_asks() -> None:
    async def scenario(world: World) -> None:
        await world.write(batch_of(NOW_MS))
        replies = [world.ask(NOW_MS) for _ in range(5)]
        await settle()
        assert len(world.node.executor.queue) == 1
        for reply in replies:
            await world.node.finish(reply)

    play(scenario)


def test_batches_that_claim_a_time_and_do_not_have_it_are_opened_one_by_one() -> None:
    """A header can name any highest time: no piece of a worker's work is as long as somebody wrote such batches."""

    async def scenario(world: World) -> None:
        liar = bytearray(batch_of(NOW_MS, codec=Compression.NONE))
        liar[35:43] = (NOW_MS + 9).to_bytes(8, "big")  # The CRC is not looked at here.
        for _ in range(3):
            await world.write(bytes(liar))
        await world.write(batch_of(NOW_MS + 9))
        reply = world.ask(NOW_MS + 5)
        await settle()
        steps = 0
        while not reply.done():
            assert len(world.node.executor.queue) == 1
            await world.node.run_some_work()
            steps += 1
        assert steps == 4
        (answer,) = await world.answers(NOW_MS + 5)
        assert answer.offset == 3

    play(scenario)


def test_a_batch_that_expands_too_far_is_found_as_a_whole() -> None:
    async def scenario(world: World) -> None:
        await world.write(batch_of(NOW_MS))
        await world.write(batch_of(NOW_MS + 1, NOW_MS + 9, value=bytes(9 * MIB)))
        (answer,) = await world.answers(NOW_MS + 5)
        assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.NONE, 1, NOW_MS + 9)

    play(scenario)


def test_a_record_found_by_a_leader_that_lost_its_lead_meanwhile_does_not_count() -> None:
    async def scenario(world: World) -> None:
        await world.write(batch_of(NOW_MS))
        reply = world.ask(NOW_MS)
        await settle()
        world.partition().wait_for_leader(world.partition().leader_epoch)
        answer = world.node.decode(await world.node.finish(reply), ListOffsetsResponse, VERSION)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(scenario)


def test_times_in_a_batch_of_many_records_hold_the_loop_no_longer_than_any_other_request() -> None:
    loop = TurnMeter()

    async def run() -> None:
        world = await start()
        spare_workers(world.node.executor, loop)
        await world.write(batch_of(*[NOW_MS] * 200_000, NOW_MS + 1))
        yardstick = min(yardstick_s() for _ in range(3))
        await asyncio.sleep(0)
        loop.longest_s = 0.0
        await world.answers(*[NOW_MS + 1] * 5, MAX_TIMESTAMP)
        await asyncio.sleep(0)
        assert loop.longest_s / yardstick <= MOST_YARDSTICKS

    loop.run_until_complete(run())
    loop.close()


def test_no_topic_has_an_index_in_which_reads_have_to_pass_over_many_batches_or_that_takes_long_to_read() -> None:
    async def scenario(world: World) -> None:
        config = world.partition().log.config
        assert config.index_interval_bytes == 64 * 1024
        assert config.segment_index_bytes == 10 * MIB

    play(scenario, index_interval_bytes=str(2**31 - 1), segment_index_bytes=str(2**31 - 1))
