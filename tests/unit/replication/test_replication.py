"""Replication on a node, composed: what happens by itself as brokers, leaders and time change."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import BrokerEpoch, LeaderEpoch, NodeId, Offset
from quorate.kernel.ports import Buffer
from quorate.replication.core.leader import ReplicationConfig
from quorate.replication.core.leader_events import LiveBrokersChanged
from quorate.replication.core.messages import FetchPosition, ReplicaFetch, decode_answer, encode_fetch
from quorate.replication.partition import Partition
from quorate.replication.replication import NodeReplication
from quorate.transport.peers.channels import Sender
from quorate.transport.peers.errors import PeerUnreachable
from tests.simulation.world.host import SimulatedHost
from tests.simulation.world.world import World
from tests.unit.replication.replicas import (
    BROKER_EPOCHS,
    FOLLOWER,
    LEADER,
    THIRD,
    TOPIC_ID,
    Replicas,
    lead,
    run,
    turns,
    write,
)
from tests.unit.replication.test_isr_proposals import HandStore


class LeaderNode:
    """Leads one partition; its followers and its controller are played by the test."""

    def __init__(self, host: SimulatedHost) -> None:
        self._loop = host.loop
        self.replicas = Replicas(host)
        self.store = HandStore(host.loop)
        self.disk = host.disk
        self.failures: list[Exception] = []
        self.replication = NodeReplication(
            LEADER,
            BROKER_EPOCHS[LEADER],
            self.store,
            ReplicationConfig(replica_lag_time_max_ms=2_000),
            loop=host.loop,
            find_led=self.replicas.find_led,
            call=_nobody_answers,
            first_session=0,
            on_failure=self.failures.append,
        )
        self.replicas.port = self.replication  # type: ignore[assignment]

    def lead(self, *isr: NodeId, epoch: int = 1) -> Partition:
        partition = self.replicas.by_key.get((TOPIC_ID, 0)) or self.replicas.open()
        replicas = (LEADER, FOLLOWER)
        lead(partition, epoch, isr=isr, replicas=replicas, partition_epoch=epoch, config=self.replication.config)
        self.replication.on_leading(partition)
        return partition

    def ask(self, ask: FetchPosition) -> "asyncio.Task[Sequence[Buffer]]":
        payload = encode_fetch(ReplicaFetch(1, BROKER_EPOCHS[FOLLOWER], [ask]))
        return self._loop.create_task(self.replication.followers.fetch(Sender(FOLLOWER, is_known=True), payload))


async def _nobody_answers(
    node_id: NodeId, payload: bytes, timeout_ms: float, read: Callable[[memoryview], None]
) -> None:
    raise PeerUnreachable(f"{node_id} {len(payload)} {timeout_ms} {read}")


def ask(offset: int, *, epoch: int = 1, last_epoch: int = -1) -> FetchPosition:
    return FetchPosition(TOPIC_ID, 0, LeaderEpoch(epoch), Offset(offset), LeaderEpoch(last_epoch), Offset(0), Offset(0))


def with_leader(scenario: Callable[[LeaderNode, World], Awaitable[None]]) -> None:
    async def body(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        node = LeaderNode(host)
        await scenario(node, world)
        node.replication.stop()
        await turns()

    run(body)


def proposed(node: LeaderNode) -> list[list[NodeId]]:
    return [[member.node_id for member in command.changes[0].new_isr] for command in node.store.submitted]


def test_a_follower_that_does_not_fetch_is_proposed_to_go_after_the_lag_time() -> None:
    async def scenario(node: LeaderNode, world: World) -> None:
        partition = node.lead(LEADER, FOLLOWER)
        write(partition, b"x")
        await world.sleep(1.9)
        assert proposed(node) == []
        await world.sleep(1.0)
        assert proposed(node) == [[LEADER]]
        assert partition.high_watermark == 0  # Not before the change is committed.

    with_leader(scenario)


def test_a_follower_that_stands_at_the_end_of_an_idle_partition_stays() -> None:
    async def scenario(node: LeaderNode, world: World) -> None:
        node.lead(LEADER, FOLLOWER)
        waiting = node.ask(ask(0))
        await world.sleep(30)
        assert proposed(node) == []
        assert waiting.done()

    with_leader(scenario)


def test_a_follower_that_asked_while_it_was_fenced_is_proposed_as_soon_as_it_is_not() -> None:
    async def scenario(node: LeaderNode, world: World) -> None:
        partition = node.lead(LEADER)
        fenced = {LEADER: BROKER_EPOCHS[LEADER], THIRD: BROKER_EPOCHS[THIRD]}
        partition.step(LiveBrokersChanged(broker_epochs=fenced))
        node.ask(ask(0))
        await world.sleep(0.001)
        assert proposed(node) == []
        partition.step(LiveBrokersChanged(broker_epochs=BROKER_EPOCHS))
        node.replication.brokers_changed(partition)
        await world.sleep(0.001)
        assert proposed(node) == [[LEADER, FOLLOWER]]

    with_leader(scenario)


def test_a_follower_of_an_earlier_start_of_its_broker_is_not_proposed() -> None:
    async def scenario(node: LeaderNode, world: World) -> None:
        partition = node.lead(LEADER)
        restarted = {**BROKER_EPOCHS, FOLLOWER: BrokerEpoch(99)}
        partition.step(LiveBrokersChanged(broker_epochs=restarted))
        node.ask(ask(0))
        node.replication.brokers_changed(partition)
        await world.sleep(5)
        assert proposed(node) == []

    with_leader(scenario)


def test_a_leader_that_is_elected_again_starts_without_what_it_was_asked_before() -> None:
    async def scenario(node: LeaderNode, world: World) -> None:
        node.lead(LEADER)
        waiting = node.ask(ask(0))
        await world.sleep(0.001)
        node.lead(LEADER, epoch=3)
        answer = decode_answer(b"".join(await waiting))
        assert [fetched.error for fetched in answer.partitions] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    with_leader(scenario)


def test_a_leader_whose_disk_fails_ends_its_node_so_that_another_takes_over() -> None:
    async def scenario(node: LeaderNode, world: World) -> None:
        partition = node.lead(LEADER, FOLLOWER)
        node.disk.syncs_fail = True
        write(partition, b"x")
        await world.sleep(0.01)
        assert partition.failure is not None
        assert node.failures == [partition.failure]

    with_leader(scenario)


def test_a_leader_whose_disk_fails_and_whom_nobody_can_replace_leaves_its_node_to_the_other_partitions() -> None:
    async def scenario(node: LeaderNode, world: World) -> None:
        partition = node.lead(LEADER)
        node.disk.syncs_fail = True
        write(partition, b"x")
        await world.sleep(0.01)
        assert partition.failure is not None
        assert node.failures == []

    with_leader(scenario)
