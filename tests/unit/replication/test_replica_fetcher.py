"""The follower's side: what it asks whom, and when it asks again."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import BrokerEpoch, NodeId, Offset
from quorate.replication import replica_fetcher
from quorate.replication.core.messages import (
    FetchedPartition,
    FetchPosition,
    ReplicaFetch,
    ReplicaFetchAnswer,
    decode_fetch,
    encode_answer,
)
from quorate.replication.partition import Partition
from quorate.replication.replica_fetcher import ReplicaFetcher
from quorate.transport.peers.errors import PeerTimeout, PeerUnreachable
from tests.simulation.world.executor import WorkDelay
from tests.simulation.world.host import SimulatedHost
from tests.simulation.world.world import World
from tests.unit.replication.replicas import LEADER, THIRD, Replicas, fail, follow, lead, run, turns, write

NOTHING = memoryview(b"")


class Leaders:
    """The other nodes: every request is kept until the test answers it."""

    def __init__(self, world: World, host: SimulatedHost) -> None:
        self.world = world
        self.replicas = Replicas(host)
        self._loop = host.loop
        self.requests: list[tuple[NodeId, ReplicaFetch]] = []
        self._futures: list[asyncio.Future[bytes]] = []
        self.fetcher = ReplicaFetcher(
            NodeId(9), BrokerEpoch(12), host.loop, self._call, first_session=0, on_failure=fail
        )
        self.replicas.port.synced = self.fetcher.synced

    async def _call(
        self, node_id: NodeId, payload: bytes, timeout_ms: float, read: Callable[[memoryview], None]
    ) -> None:
        assert timeout_ms > 0
        future: asyncio.Future[bytes] = self._loop.create_future()
        self.requests.append((node_id, decode_fetch(payload)))
        self._futures.append(future)
        read(memoryview(await future))

    def open(self, index: int = 0, *, epoch: int = 1, leader: NodeId = LEADER) -> Partition:
        partition = self.replicas.open(index)
        follow(partition, epoch, leader)
        self.fetcher.follow(partition)
        return partition

    def asked(self, number: int) -> list[tuple[int, int, int]]:
        """Of a request: partition, leader epoch and offset of everything that it asks for."""
        return [(ask.partition, ask.leader_epoch, ask.fetch_offset) for ask in self.requests[number][1].partitions]

    async def answer(self, number: int, *fetched: FetchedPartition, is_known: bool = True) -> None:
        self._futures[number].set_result(b"".join(encode_answer(ReplicaFetchAnswer(is_known, list(fetched)))))
        await turns(6)

    async def fail(self, number: int, error: Exception) -> None:
        self._futures[number].set_exception(error)
        await turns(6)

    def ask(self, number: int, position: int = 0) -> FetchPosition:
        return self.requests[number][1].partitions[position]


def with_leaders(scenario: Callable[[Leaders, World, SimulatedHost], Awaitable[None]]) -> None:
    async def body(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        leaders = Leaders(world, host)
        await scenario(leaders, world, host)
        leaders.fetcher.stop()
        await turns()

    run(body)


def nothing(ask: FetchPosition, *, high_watermark: int = 0, error: ErrorCode = ErrorCode.NONE) -> FetchedPartition:
    return FetchedPartition(ask, error, None, Offset(0), Offset(high_watermark), NOTHING)


def records(host: SimulatedHost, ask: FetchPosition, value: bytes = b"x") -> FetchedPartition:
    """A batch that the leader has at offset 0."""
    source = Replicas(host).open(index=99)
    lead(source, ask.leader_epoch, isr=(LEADER,), replicas=(LEADER,))
    write(source, value)
    log = source.log
    piece = log.read(log.log_start_offset, max_bytes=1 << 20, up_to_offset=log.log_end_offset, minimum_one_batch=True)
    return FetchedPartition(ask, ErrorCode.NONE, None, Offset(0), Offset(0), memoryview(piece.read()))


def test_all_partitions_of_a_leader_share_a_request_and_each_leader_has_its_own() -> None:
    async def scenario(leaders: Leaders, _: World, __: SimulatedHost) -> None:
        leaders.open(0)
        leaders.open(1)
        leaders.open(2, leader=THIRD)
        await turns()
        assert [node for node, _ in leaders.requests] == [LEADER, THIRD]
        assert leaders.asked(0) == [(0, 1, 0), (1, 1, 0)]

    with_leaders(scenario)


def test_what_was_fetched_is_synced_before_the_next_request_says_so() -> None:
    async def scenario(leaders: Leaders, world: World, host: SimulatedHost) -> None:
        host.executor.delay = WorkDelay(minimum_ms=20, maximum_ms=20, slow_probability=0)
        partition = leaders.open()
        await turns()
        await leaders.answer(0, records(host, leaders.ask(0)))
        assert partition.log.log_end_offset == 1
        assert len(leaders.requests) == 1
        await world.sleep(0.05)
        assert partition.log.synced_end_offset == 1
        assert leaders.asked(1) == [(0, 1, 1)]

    with_leaders(scenario)


def test_a_new_leader_hears_of_what_was_fetched_only_when_it_is_synced() -> None:
    async def scenario(leaders: Leaders, world: World, host: SimulatedHost) -> None:
        host.executor.delay = WorkDelay(minimum_ms=20, maximum_ms=20, slow_probability=0)
        partition = leaders.open()
        await turns()
        await leaders.answer(0, records(host, leaders.ask(0)))
        follow(partition, 2, THIRD)
        leaders.fetcher.follow(partition)
        await turns()
        assert len(leaders.requests) == 1
        await world.sleep(0.05)
        assert leaders.requests[1][0] == THIRD
        assert leaders.asked(1) == [(0, 2, 1)]

    with_leaders(scenario)


def test_a_slow_disk_of_one_partition_does_not_hold_up_the_others() -> None:
    async def scenario(leaders: Leaders, world: World, host: SimulatedHost) -> None:
        host.executor.delay = WorkDelay(minimum_ms=20, maximum_ms=20, slow_probability=0)
        leaders.open(0)
        leaders.open(1)
        await turns()
        await leaders.answer(0, records(host, leaders.ask(0)), nothing(leaders.ask(0, 1)))
        assert leaders.asked(1) == [(1, 1, 0)]
        await world.sleep(0.05)
        assert leaders.asked(2) == [(0, 1, 1)]  # A second request, while the first one waits.

    with_leaders(scenario)


def test_a_refused_partition_waits_alone_and_longer_each_time() -> None:
    async def scenario(leaders: Leaders, world: World, _: SimulatedHost) -> None:
        leaders.open(0)
        leaders.open(1)
        await turns()
        refused = nothing(leaders.ask(0), error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await leaders.answer(0, refused, nothing(leaders.ask(0, 1)))
        assert leaders.asked(1) == [(1, 1, 0)]
        await world.sleep(0.025)
        assert leaders.asked(2) == [(0, 1, 0)]
        await leaders.answer(2, nothing(leaders.ask(2), error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await world.sleep(0.025)
        assert len(leaders.requests) == 3
        await world.sleep(0.025)
        assert leaders.asked(3) == [(0, 1, 0)]

    with_leaders(scenario)


def test_after_a_failed_request_everything_is_asked_anew_in_a_new_session() -> None:
    async def scenario(leaders: Leaders, world: World, _: SimulatedHost) -> None:
        leaders.open(0)
        leaders.open(1)
        await turns()
        await leaders.answer(0, nothing(leaders.ask(0)))
        assert leaders.asked(1) == [(0, 1, 0)]
        await leaders.fail(1, PeerTimeout("no answer"))
        await world.sleep(0.03)
        assert sorted(leaders.asked(2)) == [(0, 1, 0), (1, 1, 0)]
        assert leaders.requests[2][1].session != leaders.requests[1][1].session

    with_leaders(scenario)


def test_a_leader_that_has_forgotten_the_session_is_asked_for_everything() -> None:
    async def scenario(leaders: Leaders, world: World, _: SimulatedHost) -> None:
        leaders.open()
        await turns()
        await leaders.answer(0, is_known=False)
        await world.sleep(0.03)
        assert leaders.asked(1) == [(0, 1, 0)]
        assert leaders.requests[1][1].session != leaders.requests[0][1].session

    with_leaders(scenario)


def test_two_requests_are_under_way_at_most_and_what_became_ready_meanwhile_is_asked_when_one_fails() -> None:
    async def scenario(leaders: Leaders, _: World, __: SimulatedHost) -> None:
        leaders.open(0)
        await turns()
        leaders.open(1)
        await turns()
        leaders.open(2)
        await turns()
        assert len(leaders.requests) == 2
        await leaders.fail(0, PeerUnreachable("gone"))
        assert leaders.asked(2) == [(2, 1, 0)]

    with_leaders(scenario)


def test_a_late_answer_of_an_earlier_epoch_is_not_taken_for_that_of_the_current_one() -> None:
    async def scenario(leaders: Leaders, world: World, _: SimulatedHost) -> None:
        partition = leaders.open()
        await turns()
        follow(partition, 2)
        leaders.fetcher.follow(partition)
        await turns()
        assert leaders.asked(1) == [(0, 2, 0)]
        await leaders.answer(0, nothing(leaders.ask(0), error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await world.sleep(0.1)
        assert [leaders.asked(number) for number in range(2, len(leaders.requests))] == []
        await leaders.answer(1, nothing(leaders.ask(1), high_watermark=0))
        assert leaders.asked(2) == [(0, 2, 0)]

    with_leaders(scenario)


def test_what_is_parked_keeps_a_request_under_way_even_without_anything_new_to_ask() -> None:
    async def scenario(leaders: Leaders, _: World, __: SimulatedHost) -> None:
        leaders.open()
        await turns()
        await leaders.answer(0)
        assert leaders.asked(1) == []
        assert leaders.requests[1][1].session == leaders.requests[0][1].session

    with_leaders(scenario)


def test_a_partition_that_now_leads_is_not_asked_for() -> None:
    async def scenario(leaders: Leaders, world: World, _: SimulatedHost) -> None:
        partition = leaders.open()
        await turns()
        lead(partition, 2)
        leaders.fetcher.unfollow(partition)
        await leaders.answer(0, nothing(leaders.ask(0), error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await world.sleep(1)
        assert len(leaders.requests) == 1

    with_leaders(scenario)


def test_a_stopped_fetcher_asks_nobody() -> None:
    async def scenario(leaders: Leaders, world: World, _: SimulatedHost) -> None:
        leaders.open()
        await turns()
        leaders.fetcher.stop()
        leaders.open(1)
        await world.sleep(1)
        assert len(leaders.requests) == 1

    with_leaders(scenario)


def test_a_leader_that_connects_is_asked_although_the_last_request_failed() -> None:
    async def scenario(leaders: Leaders, world: World, _: SimulatedHost) -> None:
        leaders.open()
        await turns()
        for number in range(8):
            await leaders.fail(number, PeerUnreachable("gone"))
            await world.sleep(1.1)
        asked = len(leaders.requests)
        await leaders.fail(asked - 1, PeerUnreachable("gone"))
        leaders.fetcher.peer_connected(LEADER)
        await world.sleep(1.1)
        assert len(leaders.requests) == asked + 1

    with_leaders(scenario)


def test_a_request_asks_for_a_bounded_number_of_partitions_and_the_next_ones_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_fetcher, "_REQUEST_MAX_PARTITIONS", 2)

    async def scenario(leaders: Leaders, _: World, __: SimulatedHost) -> None:
        for index in range(5):
            leaders.open(index)
        await turns()
        assert [len(request.partitions) for _, request in leaders.requests] == [2, 2]
        await leaders.answer(0)
        assert [ask.partition for _, request in leaders.requests for ask in request.partitions] == [0, 1, 2, 3, 4]

    with_leaders(scenario)
