"""Full collections stay short however many objects there are, and what comes and goes needs none."""

import asyncio
import gc
import struct
import sys
import weakref
from collections.abc import Callable, Iterator
from random import Random

import pytest
import uvloop

from quorate.broker.dispatch import Dispatcher
from quorate.broker.memory import GENEROUS_BLOCKS, GROWTH_WITHOUT, ShortCollections, freeze_everything
from quorate.kernel.ids import Offset, PartitionIndex, TopicName
from quorate.protocol.frames import encode_request
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from quorate.records.builder import build_batch
from quorate.records.record import Record
from quorate.transport.connection import ServerConnection
from quorate.transport.server import ListenerConfig, Server
from tests.simulation.disk import SimulatedDisk
from tests.simulation.simulated_node import SimulatedClock, SimulatedNode, settle

ALWAYS_LONG = -1.0


@pytest.fixture
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Collections:
    """Whether each collection was followed by a freeze, as ``ShortCollections`` sees their time."""

    def __init__(self, *durations_s: float) -> None:
        self._durations_s = iter(durations_s)
        self._now_s = 0.0
        self._is_begun = False
        self.freezes = 0

    def now_s(self) -> float:
        if self._is_begun:
            self._now_s += next(self._durations_s)
        self._is_begun = not self._is_begun
        return self._now_s

    def freeze(self) -> None:
        self.freezes += 1


class Circle:
    """As a cancelled request leaves one, of an exception, its traceback and a frame."""

    def __init__(self) -> None:
        self.itself = self


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its time passes when the test says so."""

    now_s = 0.0

    def time(self) -> float:
        return self.now_s

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        self.run_until_complete(asyncio.sleep(0))


def test_what_survives_a_long_collection_is_frozen(no_collections: None) -> None:
    collections = Collections(0.009, 0.011, 0.001)
    short = ShortCollections(collections.freeze, collections.now_s, long_s=0.01)
    short.install(JumpingLoop())
    try:
        freezes = []
        for generation in (2, 1, 2, 0, 2):
            gc.collect(generation)
            freezes.append(collections.freezes)
    finally:
        short.remove()
    assert freezes == [0, 0, 1, 1, 1]


def test_what_is_there_at_the_start_puts_no_full_collection_off() -> None:
    gc.collect()
    kept = [[number] for number in range(300_000)]
    gc.collect()
    gc.freeze()  # As a parent does that forks; what is due next still counts what it has found alive.
    full = []

    def collecting(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            full.append(len(gc.get_objects()))

    freeze_everything()
    gc.callbacks.append(collecting)
    try:
        kept += [[number] for number in range(120_000)]
    finally:
        gc.callbacks.remove(collecting)
        gc.unfreeze()
    assert full
    assert full[0] < 120_000


def test_the_next_collection_has_only_newer_objects_to_look_at(no_collections: None) -> None:
    kept = [[number] for number in range(100_000)]
    short = ShortCollections(long_s=ALWAYS_LONG)
    short.install(JumpingLoop())
    try:
        assert len(gc.get_objects()) > len(kept)
        gc.collect()
        assert len(gc.get_objects()) < 1_000
        assert gc.get_freeze_count() > len(kept)
    finally:
        short.remove()
        gc.unfreeze()


def blocks_since_now() -> Callable[[], int]:
    """Few at first, so that a test need not make millions to have several times as many."""
    there = sys.getallocatedblocks()
    return lambda: sys.getallocatedblocks() - there


@pytest.fixture
def backstop(no_collections: None) -> Iterator[JumpingLoop]:
    """Everything is looked at when there are several times 10,000 blocks."""
    gc.freeze()
    short = ShortCollections(long_s=ALWAYS_LONG, blocks=blocks_since_now(), generous_blocks=10_000)
    loop = JumpingLoop()
    short.install(loop)
    yield loop
    short.remove()
    loop.close()
    gc.unfreeze()


def freeze_circles(count: int) -> "weakref.ref[Circle]":
    circles = [Circle() for _ in range(count)]
    gc.collect()
    return weakref.ref(circles[0])


def test_circles_that_were_frozen_go_when_there_is_several_times_as_much(backstop: JumpingLoop) -> None:
    is_there = freeze_circles(60_000)
    gc.collect()
    assert is_there() is not None, "no turn is held up by it in its middle"

    backstop.pass_time(0.025)

    assert is_there() is None
    assert len(gc.get_objects()) < 1_000, "what is left is frozen again"


def test_fewer_are_left_where_they_are(backstop: JumpingLoop) -> None:
    is_there = freeze_circles(5_000)
    backstop.pass_time(0.025)
    assert is_there() is not None


def test_where_there_were_circles_the_next_look_comes_sooner(backstop: JumpingLoop) -> None:
    freeze_circles(60_000)
    backstop.pass_time(0.025)
    is_there = freeze_circles(12_000)
    backstop.pass_time(0.025)
    assert is_there() is None


def test_what_grows_without_circles_is_looked_at_again_only_when_it_is_several_times_as_much(
    backstop: JumpingLoop,
) -> None:
    kept = [[number] for number in range(60_000)]
    gc.collect()
    backstop.pass_time(0.025)  # Looks at everything, and finds nothing to free.
    is_there = freeze_circles(60_000)
    backstop.pass_time(0.025)
    assert is_there() is not None
    assert kept


def test_creating_ten_thousand_partitions_is_no_reason_to_look_at_everything(no_collections: None) -> None:
    async def scenario() -> int:
        random = Random(1)
        node = SimulatedNode(SimulatedDisk(random), SimulatedClock(), random)
        await node.start()
        blocks = blocks_since_now()
        topic = CreatableTopic(name="t", num_partitions=100, replication_factor=1)
        await node.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
        while node.has_work:
            await node.run_some_work()
        return blocks()

    blocks_per_partition = asyncio.run(scenario()) / 100
    assert 10_000 * blocks_per_partition < (GROWTH_WITHOUT - 1) * GENEROUS_BLOCKS


def test_objects_that_take_the_place_of_others_do_not_pile_up() -> None:
    kept = [[number] for number in range(50_000)]
    gc.collect()
    gc.freeze()
    looked_at: list[int] = []

    def collecting(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            looked_at.append(sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1)))

    short = ShortCollections(long_s=ALWAYS_LONG)
    loop = JumpingLoop()
    short.install(loop)
    gc.callbacks.append(collecting)
    try:
        for number in range(50_000):
            kept[number] = [number]
            if number % 1_000 == 0:
                loop.pass_time(0.025)
    finally:
        gc.callbacks.remove(collecting)
        short.remove()
        loop.close()
        gc.unfreeze()
    assert len(looked_at) > 10
    assert max(looked_at[1:]) < 10_000


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_closed_connection_is_freed_without_a_collection(
    no_collections: None, make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def scenario() -> None:
        random = Random(1)
        node = SimulatedNode(SimulatedDisk(random), SimulatedClock(), random)
        await node.start()
        opened: list[weakref.ref[ServerConnection]] = []

        def open_connection(connection: ServerConnection) -> Dispatcher:
            opened.append(weakref.ref(connection))
            return node.node.dispatch.serve(connection)

        server = Server(asyncio.get_running_loop(), ListenerConfig(host="127.0.0.1", port=0), open_connection)
        await server.start()
        await ask_and_leave(server.port)
        while server._connections:
            await asyncio.sleep(0)
        await settle()
        assert [connection() for connection in opened] == [None]
        await server.stop(0)

    loop = make_loop()
    try:
        loop.run_until_complete(scenario())
    finally:
        loop.close()


async def ask_and_leave(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(3):
        writer.write(b"".join(bytes(part) for part in encode_request(number, "client", MetadataRequest(), 9)))
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        await reader.readexactly(size)
    writer.close()
    await writer.wait_closed()


def test_a_removed_partition_is_freed_without_a_collection(no_collections: None) -> None:
    async def scenario() -> None:
        random = Random(1)
        node = SimulatedNode(SimulatedDisk(random), SimulatedClock(), random)
        await node.start()
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await node.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
        partition = weakref.ref(node.node.partitions.led(TopicName("t"), PartitionIndex(0)))
        data = [PartitionProduceData(index=0, records=build_batch([Record(Offset(0), 0, b"k", b"v")]))]
        produce = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])
        await node.call(produce, 9, ProduceResponse)
        await node.call(DeleteTopicsRequest(topic_names=["t"]), 5, DeleteTopicsResponse)
        while node.has_work:
            await node.run_some_work()
        await settle()
        assert partition() is None

    asyncio.run(scenario())
