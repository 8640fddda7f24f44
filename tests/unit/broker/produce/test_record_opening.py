"""Produce of batches whose records have to be opened: by a worker, within bounds, in order, and to the end."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, cast

import pytest

from quorate.broker.api import MAX_ELEMENTS
from quorate.broker.large_requests import HOT_ELEMENTS
from quorate.broker.produce.record_opening import SMALL_RECORDS
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import Offset, PartitionIndex, TopicName
from quorate.protocol.frames import encode_request
from quorate.protocol.messages import create_topics as create
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from quorate.records.batch import Compression, iterate_batches
from quorate.records.builder import build_batch
from quorate.records.record import Record, iterate_records
from quorate.replication.partition import Partition
from quorate.transport.connection import CloseConnection
from quorate.transport.outbox import Reply
from tests.simulation.disk import SimulatedDisk
from tests.simulation.simulated_node import SimulatedClock, SimulatedNode, settle

TOPIC = "table"
VERSION = 9
NOW_MS = 1_700_000_000_000
MIB = 1024 * 1024

Scenario = Callable[["World"], Awaitable[None]]


class Connection:
    """Notes until when no further request is to be served."""

    peer_host = "client"

    def __init__(self) -> None:
        self.held: list[asyncio.Future[Any]] = []

    def mute(self, duration_ms: int) -> None:
        """There are no quotas here."""

    def hold(self, until: "asyncio.Future[Any]") -> None:
        self.held.append(until)

    @property
    def is_held(self) -> bool:
        return any(not until.done() for until in self.held)


class World:
    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.connection = Connection()
        self._dispatcher = node.node.dispatch.serve(cast(Any, self.connection))

    def send(self, *batches: bytes, acks: int = 1) -> "Reply | asyncio.Future[Reply | None] | None":
        """One batch for each of the first partitions. The frame's memory is used for something else at once."""
        data = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)]
        request = ProduceRequest(
            acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
        )
        frame = bytearray(b"".join(bytes(part) for part in encode_request(1, "client", request, VERSION)))[4:]
        reply = self._dispatcher(memoryview(frame))
        frame[:] = bytes(len(frame))
        return reply

    async def answers(self, *batches: bytes) -> list[tuple[int, int]]:
        """The error code and base offset of each partition."""
        reply = self.send(*batches)
        if isinstance(reply, asyncio.Future):
            reply = await self.node.finish(reply)
        answer = self.node.decode(cast(Reply, reply), ProduceResponse, VERSION)
        return [(each.error_code, each.base_offset) for each in answer.responses[0].partition_responses]

    def partition(self, index: int = 0) -> Partition:
        return self.node.node.partitions.led(TopicName(TOPIC), PartitionIndex(index))

    def stored(self, index: int = 0) -> list[Record]:
        data = self._read(index)
        return [record for position, _ in iterate_batches(data) for record in iterate_records(data, position)]

    def stored_codecs(self, index: int = 0) -> set[Compression]:
        return {header.compression for _, header in iterate_batches(self._read(index))}

    def _read(self, index: int) -> bytes:
        log = self.partition(index).log
        if not log.log_end_offset:
            return b""
        return log.read(Offset(0), max_bytes=2**31, up_to_offset=log.log_end_offset, minimum_one_batch=True).read()


def play(scenario: Scenario, partitions: int = 1, **configs: Any) -> None:
    async def run() -> None:
        random = Random(1)
        node = SimulatedNode(SimulatedDisk(random), SimulatedClock(), random)
        await node.start()
        topic = create.CreatableTopic(
            name=TOPIC,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                create.CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()
            ],
        )
        answer = await node.call(create.CreateTopicsRequest(topics=[topic]), 7, create.CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        while node.has_work:
            await node.run_some_work()
        await scenario(World(node))

    asyncio.run(run())


def batch_of(
    count: int, codec: Compression = Compression.ZSTD, *, key: bytes | None = b"k", value: bytes = b"v"
) -> bytes:
    return build_batch([Record(Offset(n), NOW_MS, key, value) for n in range(count)], compression=codec)


MANY = batch_of(SMALL_RECORDS + 1)
FEW = batch_of(3)


@pytest.mark.parametrize("configs", [{"cleanup_policy": "compact"}, {"compression_type": "gzip"}], ids=str)
def test_a_batch_of_many_records_is_opened_by_a_worker_with_its_connection_held(configs: dict[str, str]) -> None:
    async def scenario(world: World) -> None:
        reply = world.send(MANY)
        await settle()
        assert isinstance(reply, asyncio.Future)
        assert world.connection.is_held
        assert world.node.has_work
        assert not world.stored()

        await world.node.finish(reply)
        assert not world.connection.is_held
        assert len(world.stored()) == SMALL_RECORDS + 1

    play(scenario, 1, **configs)


@pytest.mark.parametrize("configs", [{"cleanup_policy": "compact"}, {"compression_type": "gzip"}], ids=str)
def test_a_batch_of_few_records_is_opened_at_once(configs: dict[str, str]) -> None:
    async def scenario(world: World) -> None:
        world.send(FEW)
        assert len(world.stored()) == 3
        assert not world.connection.held

    play(scenario, 1, **configs)


def test_nothing_is_opened_where_the_topic_asks_nothing_of_single_records() -> None:
    async def scenario(world: World) -> None:
        damaged = bytearray(batch_of(SMALL_RECORDS + 1, key=None))
        world.send(bytes(damaged))
        assert world.partition().log.log_end_offset == SMALL_RECORDS + 1
        assert not world.connection.held

    play(scenario)


def test_few_records_in_each_of_many_partitions_are_many() -> None:
    """Each of them alone would be opened on the loop; together they would hold it for long."""

    async def scenario(world: World) -> None:
        reply = world.send(*[batch_of(SMALL_RECORDS // 2)] * 5)
        assert isinstance(reply, asyncio.Future)
        assert [world.partition(index).log.log_end_offset for index in range(5)] == [500, 500, 0, 0, 0]

        await world.node.finish(reply)
        assert [world.partition(index).log.log_end_offset for index in range(5)] == [500] * 5

    play(scenario, partitions=5, cleanup_policy="compact")


def test_many_partitions_are_written_in_turns() -> None:
    async def scenario(world: World) -> None:
        reply = world.send(*[FEW] * 250)
        assert isinstance(reply, asyncio.Future)
        assert sum(world.partition(index).log.log_end_offset for index in range(250)) == 3 * 100

        answers = world.node.decode(await world.node.finish(reply), ProduceResponse, VERSION).responses[0]
        assert [(each.index, each.error_code) for each in answers.partition_responses] == [(n, 0) for n in range(250)]
        assert sum(world.partition(index).log.log_end_offset for index in range(250)) == 3 * 250

    play(scenario, partitions=250)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("configs", [{"cleanup_policy": "compact"}, {"compression_type": "uncompressed"}], ids=str)
def test_a_compression_bomb_is_refused_as_too_large(codec: Compression, configs: dict[str, str]) -> None:
    async def scenario(world: World) -> None:
        bomb = batch_of(1, codec, value=bytes(17 * MIB))
        assert len(bomb) < MIB
        assert await world.answers(bomb) == [(ErrorCode.MESSAGE_TOO_LARGE, -1)]
        assert await world.answers(FEW) == [(ErrorCode.NONE, 0)]

    play(scenario, 1, **configs)


def test_the_size_of_a_batch_is_looked_at_before_it_is_opened() -> None:
    """A batch of 1.6 MB with 2 million records took 12 s, and was refused then."""

    async def scenario(world: World) -> None:
        reply = world.send(batch_of(2_000, Compression.NONE, value=bytes(100)))
        assert not isinstance(reply, asyncio.Future)
        answer = world.node.decode(reply, ProduceResponse, VERSION)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert not world.node.has_work

    play(scenario, cleanup_policy="compact", max_message_bytes="100000")


@pytest.mark.parametrize("count", [3, SMALL_RECORDS + 1])
def test_a_record_without_a_key_is_refused_whoever_opens_the_batch(count: int) -> None:
    async def scenario(world: World) -> None:
        assert await world.answers(batch_of(count, key=None)) == [(ErrorCode.INVALID_RECORD, -1)]
        assert not world.stored()

    play(scenario, cleanup_policy="compact")


@pytest.mark.parametrize("count", [3, SMALL_RECORDS + 1])
def test_the_records_are_stored_in_the_codec_of_the_topic(count: int) -> None:
    async def scenario(world: World) -> None:
        assert await world.answers(batch_of(count)) == [(ErrorCode.NONE, 0)]
        assert await world.answers(batch_of(count, Compression.LZ4)) == [(ErrorCode.NONE, count)]
        assert world.stored_codecs() == {Compression.LZ4}
        assert [record.offset for record in world.stored()] == list(range(2 * count))

    play(scenario, compression_type="lz4")


@pytest.mark.parametrize("count", [2, SMALL_RECORDS + 1])
def test_one_record_that_is_too_old_is_refused_whoever_opens_the_batch(count: int) -> None:
    async def scenario(world: World) -> None:
        old = Record(Offset(count), NOW_MS - 10_000_000, b"k", b"v")
        records = [*(Record(Offset(n), NOW_MS, b"k", b"v") for n in range(count)), old]
        assert await world.answers(build_batch(records)) == [(ErrorCode.INVALID_TIMESTAMP, -1)]
        assert await world.answers(build_batch(records[:-1])) == [(ErrorCode.NONE, 0)]

    play(scenario, message_timestamp_before_max_ms="3600000")


def test_what_was_received_is_written_though_its_sender_has_gone() -> None:
    async def scenario(world: World) -> None:
        reply = world.send(MANY, acks=0)
        assert isinstance(reply, asyncio.Future)
        await settle()
        reply.cancel()
        while world.node.has_work or not world.connection.held[0].done():
            await world.node.run_some_work()
        assert len(world.stored()) == SMALL_RECORDS + 1

    play(scenario, cleanup_policy="compact")


def test_one_batch_after_the_other_is_opened() -> None:
    """The memory of many is that of one."""

    async def scenario(world: World) -> None:
        replies = [world.send(MANY) for _ in range(5)]
        await settle()
        assert len(opening(world.node)) == 1
        for reply in replies:
            await world.node.finish(cast(Any, reply))
        assert len(world.stored()) == 5 * (SMALL_RECORDS + 1)

    play(scenario, cleanup_policy="compact")


def test_a_request_for_thousands_of_partitions_is_decoded_by_a_worker_and_overtaken_by_nobody() -> None:
    async def scenario(world: World) -> None:
        reply = world.send(*[FEW] * HOT_ELEMENTS, acks=0)
        assert isinstance(reply, asyncio.Future)
        await settle()
        assert world.connection.is_held
        assert not world.stored()
        # Of most partitions there are none.
        with pytest.raises(CloseConnection, match="was refused"):
            await world.node.finish(reply)
        await settle()
        assert not world.connection.is_held
        assert len(world.stored()) == 3

    play(scenario)


def test_a_request_that_cannot_be_decoded_holds_its_connection_no_longer() -> None:
    async def scenario(world: World) -> None:
        reply = world.send(*[FEW] * (MAX_ELEMENTS + 1), acks=0)
        assert isinstance(reply, asyncio.Future)
        with pytest.raises(CloseConnection, match="more elements"):
            await world.node.finish(reply)
        await settle()
        assert not world.connection.is_held

    play(scenario)


def opening(node: SimulatedNode) -> Sequence[object]:
    return node.executor.queue
