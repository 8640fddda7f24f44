import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NO_DIRECTORY, NodeId, PartitionIndex
from quorate.metadata.core import commands as c
from quorate.quorum.core.leader_requests import BrokerHeartbeat, LeaderAnswer, LeaderRequest
from quorate.quorum.leader_calls import NoQuorum
from quorate.quorum.registration import BrokerRegistration, RegistrationConfig
from tests.simulation.world.world import World
from tests.unit.quorum.leading_node import SESSION_TIMEOUT_S, LeadingNode
from tests.unit.quorum.quorum_disk import new_disk

HEARTBEAT_INTERVAL_S = 2


class Broker:
    """Node 2's broker; between it and the leader stands the test."""

    def __init__(self, node: LeadingNode, incarnation: int = 1) -> None:
        self.node = node
        self.beats: list[BrokerHeartbeat] = []
        self.failures: list[Exception] = []
        self.is_cut_off = False
        self.error: Exception | None = None
        config = RegistrationConfig(
            node_id=NodeId(2),
            host="host",
            port=9092,
            rack=None,
            peer_address="host:9093",
            endpoints=(),
            incarnation=UUID(int=incarnation),
            directory_id=NO_DIRECTORY,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_S * 1000,
        )
        self.registration = BrokerRegistration(
            config, node.store, self, loop=asyncio.get_running_loop(), on_failure=self.failures.append
        )

    async def ask(self, request: LeaderRequest, timeout_ms: float) -> tuple[LeaderAnswer, bool]:
        assert isinstance(request, BrokerHeartbeat)
        self.beats.append(request)
        if self.error is not None:
            raise self.error
        if self.is_cut_off:
            await self.node.pass_time(timeout_ms / 1000)
            raise NoQuorum(may_be_done=False)
        return await self.node.calls.ask(request, timeout_ms)

    async def bring_up(self) -> None:
        await self.registration.register()
        await self.registration.begin()

    @property
    def is_live(self) -> bool:
        return self.node.store.image.is_live(NodeId(2))


def run(scenario: Callable[[LeadingNode], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        node = LeadingNode(new_disk())
        await node.start()
        await scenario(node)
        await node.stop()

    with World(1) as world:
        world.run(whole())


def test_a_broker_registers_reports_for_work_and_stays_alive_by_beating() -> None:
    async def scenario(node: LeadingNode) -> None:
        broker = Broker(node)
        await broker.registration.register()
        assert node.broker(2).broker_epoch == broker.registration.broker_epoch
        assert not broker.is_live
        await broker.registration.begin()
        assert broker.is_live
        broker.beats.clear()
        await node.pass_time(4 * SESSION_TIMEOUT_S)
        assert broker.is_live
        assert len(broker.beats) == pytest.approx(4 * SESSION_TIMEOUT_S / HEARTBEAT_INTERVAL_S, abs=1)
        broker.registration.stop()

    run(scenario)


def test_registering_twice_in_one_life_gives_one_epoch_and_in_another_life_a_new_one() -> None:
    async def scenario(node: LeadingNode) -> None:
        broker = Broker(node)
        await broker.registration.register()
        epoch = broker.registration.broker_epoch
        await broker.registration.register()
        assert broker.registration.broker_epoch == epoch
        again = Broker(node, incarnation=2)
        await again.registration.register()
        assert again.registration.broker_epoch > epoch

    run(scenario)


def test_a_broker_that_was_cut_off_and_comes_back_is_unfenced_by_its_next_beat() -> None:
    async def scenario(node: LeadingNode) -> None:
        broker = Broker(node)
        await broker.bring_up()
        broker.is_cut_off = True
        await node.pass_time(SESSION_TIMEOUT_S + 3)
        assert not broker.is_live
        broker.is_cut_off = False
        await node.pass_time(2 * HEARTBEAT_INTERVAL_S + 0.5)
        assert broker.is_live
        assert broker.failures == []
        broker.registration.stop()

    run(scenario)


def test_a_process_whose_id_another_one_has_taken_ends_itself_and_beats_no_more() -> None:
    async def scenario(node: LeadingNode) -> None:
        broker = Broker(node)
        await broker.bring_up()
        newer = Broker(node, incarnation=2)
        await newer.bring_up()
        await node.pass_time(3 * HEARTBEAT_INTERVAL_S)
        assert [str(failure) for failure in broker.failures] == ["another process has registered as node 2"]
        assert newer.failures == []
        beats = len(broker.beats)
        await node.pass_time(3 * HEARTBEAT_INTERVAL_S)
        assert len(broker.beats) == beats
        newer.registration.stop()

    run(scenario)


def test_a_process_that_is_superseded_before_it_was_ever_unfenced_does_not_wait_for_ever() -> None:
    async def scenario(node: LeadingNode) -> None:
        broker = Broker(node)
        await broker.registration.register()
        await Broker(node, incarnation=2).registration.register()
        with pytest.raises(QuorateError, match="another process has registered as node 2"):
            await broker.registration.begin()

    run(scenario)


def test_a_broker_that_was_removed_ends_itself() -> None:
    async def scenario(node: LeadingNode) -> None:
        broker = Broker(node)
        await broker.bring_up()
        await node.store.submit_one(c.UnregisterBroker(node_id=NodeId(2)))
        await node.pass_time(2 * HEARTBEAT_INTERVAL_S)
        assert [str(failure) for failure in broker.failures] == ["node 2 was removed from the cluster"]

    run(scenario)


def test_heartbeats_that_break_stop_the_node_instead_of_leaving_it_fenced_for_good() -> None:
    async def scenario(node: LeadingNode) -> None:
        broker = Broker(node)
        await broker.bring_up()
        broker.error = ValueError("an answer that nobody understands")
        await node.pass_time(2 * HEARTBEAT_INTERVAL_S)
        assert broker.failures == [broker.error]

    run(scenario)


def test_a_broker_that_leaves_beats_until_it_may_stop() -> None:
    async def scenario(node: LeadingNode) -> None:
        broker = Broker(node)
        await broker.bring_up()
        await node.bring_up(3)
        await node.store.submit_one(c.CreateTopic(name="t", partition_count=2, replication_factor=2))
        await broker.registration.leave(5_000)
        assert node.store.image.leader_count(NodeId(2)) == 0
        assert node.broker(2).in_controlled_shutdown
        beats = len(broker.beats)
        await node.pass_time(SESSION_TIMEOUT_S / 2)
        assert len(broker.beats) == beats

    run(scenario)


def test_a_broker_that_alone_has_the_data_leaves_at_the_end_of_its_grace() -> None:
    async def scenario(node: LeadingNode) -> None:
        broker = Broker(node)
        await broker.bring_up()
        await node.bring_up(3)
        await node.store.submit_one(c.CreateTopic(name="t", assignments={PartitionIndex(0): (NodeId(2),)}))
        started = asyncio.get_running_loop().time()
        await broker.registration.leave(3_000)
        assert asyncio.get_running_loop().time() - started == pytest.approx(3, abs=0.1)
        assert node.store.image.leader_count(NodeId(2)) == 1

    run(scenario)


def test_a_broker_that_hears_nobody_leaves_within_its_grace() -> None:
    async def scenario(node: LeadingNode) -> None:
        broker = Broker(node)
        await broker.bring_up()
        await node.bring_up(3)
        broker.is_cut_off = True
        started = asyncio.get_running_loop().time()
        await broker.registration.leave(3_000)
        assert asyncio.get_running_loop().time() - started <= 3

    run(scenario)


def test_brokers_that_all_stop_do_not_wait_for_each_other() -> None:
    async def scenario(node: LeadingNode) -> None:
        broker = Broker(node)
        await broker.bring_up()
        await node.bring_up(3)
        await node.beat(3, wants_to_stop=True)
        broker.beats.clear()
        await broker.registration.leave(3_000)
        assert broker.beats == []

    run(scenario)


def test_a_stop_ends_the_heartbeats_also_in_the_middle_of_one() -> None:
    async def scenario(node: LeadingNode) -> None:
        broker = Broker(node)
        await broker.bring_up()
        broker.is_cut_off = True
        await node.pass_time(HEARTBEAT_INTERVAL_S + 0.5)
        broker.registration.stop()
        beats = len(broker.beats)
        await node.pass_time(4 * HEARTBEAT_INTERVAL_S)
        assert len(broker.beats) == beats
        assert broker.failures == []

    run(scenario)
