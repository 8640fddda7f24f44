"""What is refused, cancelled or given up is freed at once: no circle of an error, its traceback and a frame stays.

Each test runs with collections switched off, and looks at what one finds afterwards.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from random import Random
from types import FrameType, TracebackType
from typing import Any, cast
from uuid import UUID

import pytest
import uvloop

from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import NodeId, Offset, QuorumLeader, Term
from quorate.kernel.tasks import Notifier, unless_superseded
from quorate.metadata.core import commands as c
from quorate.metadata.core.controller import Controller
from quorate.metadata.core.effective_configs import BrokerView
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.quota_entities import QuotaEntityPart
from quorate.protocol.frames import encode_request
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from quorate.protocol.schema import Request
from quorate.quorum.core.leader_requests import Describe, LeaderAnswer, LeaderRequest
from quorate.quorum.errors import NotQuorumLeader
from quorate.quorum.leader_calls import LeaderCalls, NoQuorum, PeerCalls
from quorate.quorum.leadership import ActiveController
from quorate.records.builder import build_batch
from quorate.records.record import Record
from quorate.transport.peers.errors import OutcomeUnknown
from quorate.transport.server import ListenerConfig, Server
from tests.simulation.disk import SimulatedDisk
from tests.simulation.simulated_node import QueuedExecutor, SimulatedClock, SimulatedNode, settle
from tests.unit.metadata.in_memory_store import InMemoryMetadataStore

REPETITIONS = 5


@contextmanager
def no_circles() -> Iterator[None]:
    """What the block leaves has no error, traceback or frame that only a collection frees."""
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
    finally:
        gc.set_debug(0)
        found = [repr(one) for one in gc.garbage if isinstance(one, BaseException | FrameType | TracebackType)]
        gc.garbage.clear()
        gc.enable()
    assert found == []


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(scenario())
    finally:
        loop.close()


@asynccontextmanager
async def running_node() -> AsyncIterator[SimulatedNode]:
    random = Random(1)
    node = SimulatedNode(SimulatedDisk(random), SimulatedClock(), random)
    await node.start()
    yield node
    await node.stop()


def creation(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])


def produce(acks: int) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=build_batch([Record(Offset(0), 0, b"k", b"v")]))]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])


async def ask_and_leave(server: Server, request: Request, version: int) -> None:
    """Close the connection while the request waits for the quorum's disk."""
    before = len(server._connections)
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for number in range(3):
        writer.write(b"".join(bytes(part) for part in encode_request(number, "client", request, version)))
    while len(server._connections) == before or not any(one._pending for one in server._connections):
        await asyncio.sleep(0)
    writer.close()
    await writer.wait_closed()
    while len(server._connections) > before:
        await asyncio.sleep(0)
    await settle()


@pytest.mark.parametrize("is_counted", [False, True], ids=["", "counted"])
def test_requests_whose_client_has_gone(*, is_counted: bool) -> None:
    async def scenario() -> None:
        async with running_node() as node:
            node.node.services.quotas.request_times.is_counted = is_counted
            server = Server(
                asyncio.get_running_loop(), ListenerConfig(host="127.0.0.1", port=0), node.node.dispatch.serve
            )
            await server.start()
            await ask_and_leave(server, creation("first"), 7)
            with no_circles():
                for number in range(REPETITIONS):
                    await ask_and_leave(server, creation(f"t{number}"), 7)
                    while node.has_work:
                        await node.run_some_work()
                    await settle()
            await server.stop(0)

    run(scenario)


def test_a_refused_creation_of_a_topic() -> None:
    async def scenario() -> None:
        async with running_node() as node:
            await node.call(creation("t"), 7, CreateTopicsResponse)
            with no_circles():
                for _ in range(REPETITIONS):
                    await node.call(creation("t"), 7, CreateTopicsResponse)

    run(scenario)


@pytest.mark.parametrize(("acks", "version"), [(7, 9), (-1, 9)], ids=["the request", "the partition"])
def test_a_refused_produce(acks: int, version: int) -> None:
    async def scenario() -> None:
        async with running_node() as node:
            await node.call(produce(acks), version, ProduceResponse)
            with no_circles():
                for _ in range(REPETITIONS):
                    await node.call(produce(acks), version, ProduceResponse)

    run(scenario)


def refusing_store() -> InMemoryMetadataStore:
    controller = Controller(BrokerView(node_id=NodeId(1), static_configs={}), lambda: UUID(int=1), lambda: 0)
    return InMemoryMetadataStore(controller, MetadataImage())


def test_refused_commands() -> None:
    async def scenario() -> None:
        store = refusing_store()
        creating = c.CreateTopic(name="t", partition_count=1, replication_factor=1)
        # Refused for another error, which has a traceback of its own.
        no_address = c.AlterClientQuota(entity=(QuotaEntityPart(type="ip", name="no address"),), changes=())
        with no_circles():
            for _ in range(REPETITIONS):
                await store.submit([creating])
                await store.submit([no_address])

    run(scenario)


def test_a_command_that_is_refused_to_one_who_asks_for_nothing_else() -> None:
    async def scenario() -> None:
        store = refusing_store()
        with no_circles():
            for _ in range(REPETITIONS):
                with suppress(KafkaError):
                    await store.submit_one(c.CreateTopic(name="t", partition_count=1, replication_factor=1))

    run(scenario)


def test_work_that_fails_before_it_is_superseded() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise OutcomeUnknown("no answer in time")

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        with no_circles():
            for _ in range(REPETITIONS):
                with suppress(OutcomeUnknown):
                    await unless_superseded(loop, fail(), Notifier(loop), lambda: False)

    run(scenario)


def test_work_whose_asker_is_cancelled() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        with no_circles():
            for _ in range(REPETITIONS):
                work = asyncio.wait_for(loop.create_future(), 60)
                asking = loop.create_task(unless_superseded(loop, work, Notifier(loop), lambda: False))
                await settle()
                asking.cancel()
                with suppress(asyncio.CancelledError):
                    await asking
                del asking
                await settle()

    run(scenario)


def test_commands_that_a_deposed_leader_refuses() -> None:
    async def deposed(*_: object) -> Offset:
        await asyncio.sleep(0)
        raise NotQuorumLeader("another leader came first", None)

    async def scenario() -> None:
        store = refusing_store()
        active = ActiveController(
            QuorumLeader(NodeId(1), Term(1)),
            Controller(BrokerView(node_id=NodeId(1), static_configs={}), lambda: UUID(int=1), lambda: 0),
            store,
            propose=deposed,
            confirm=deposed,
            loop=asyncio.get_running_loop(),
            executor=QueuedExecutor(),
        )
        with no_circles():
            for _ in range(REPETITIONS):
                with suppress(NotQuorumLeader):
                    await active.submit([c.FormCluster(cluster_id="c")])
                await settle()

    run(scenario)


def test_an_ask_that_this_node_refuses_since_it_leads_no_longer() -> None:
    async def refuse(_: LeaderRequest) -> LeaderAnswer:
        await asyncio.sleep(0)
        raise NotQuorumLeader("not the leader", None)

    async def scenario() -> None:
        calls = LeaderCalls(
            NodeId(1),
            cast(PeerCalls, None),
            loop=asyncio.get_running_loop(),
            random=Random(1),
            known_nodes=list,
            known_leader=lambda: QuorumLeader(NodeId(1), Term(1)),
            answer=refuse,
            on_referral=lambda *_: None,
        )
        with no_circles():
            for _ in range(REPETITIONS):
                with suppress(NoQuorum):
                    await calls.ask(Describe(), 5)

    run(scenario)
