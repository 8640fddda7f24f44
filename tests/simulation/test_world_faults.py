"""Faults of the simulated world do what the real ones do, to those whom they concern and to nobody else."""

import asyncio
from typing import cast

import pytest

from tests.simulation.disk import SimulatedDisk
from tests.simulation.test_world_connections import Pair, Peer
from tests.simulation.world.host import HostDied
from tests.simulation.world.link import LinkSettings
from tests.simulation.world.world import SimulationFailed, World


async def connected(pair: Pair) -> tuple[Peer, Peer]:
    """The two ends of a new connection."""
    await pair.listen()
    peer = await pair.connect()
    await pair.world.until(lambda: bool(pair.accepted))
    return peer, pair.accepted[0]


def test_a_partition_is_silence_and_what_was_said_comes_when_it_heals() -> None:
    async def scenario() -> None:
        peer, accepted = await connected(pair)
        world.network.partition(["client"], ["server"])
        peer.transport.write(b"late")
        await world.sleep(30)
        assert not accepted.received
        world.network.heal()
        await world.until(lambda: accepted.received == b"late", within_s=2)
        assert peer.events == accepted.events == ["made"]

    with World(1) as world:
        pair = Pair(world)
        world.run(scenario())


def test_a_one_way_partition_lets_the_other_way_through_until_its_answers_are_missed() -> None:
    async def scenario() -> None:
        peer, accepted = await connected(pair)
        world.network.block("client", "server")
        peer.transport.write(b"stuck")
        accepted.transport.write(b"passes")
        await world.sleep(20)
        assert peer.received == b"passes"
        assert not accepted.received
        assert not peer.is_lost
        # Both ends wait for acknowledgements that never come.
        await world.sleep(20)
        assert isinstance(peer.lost_with, TimeoutError)
        assert isinstance(accepted.lost_with, TimeoutError)

    with World(1, link=LinkSettings(unanswered_timeout_ms=30_000)) as world:
        pair = Pair(world)
        world.run(scenario())


def test_an_idle_connection_outlives_a_partition_unnoticed() -> None:
    async def scenario() -> None:
        peer, accepted = await connected(pair)
        world.network.isolate("server")
        await world.sleep(500)
        world.network.heal()
        peer.transport.write(b"still here")
        await world.until(lambda: accepted.received == b"still here")

    with World(1) as world:
        pair = Pair(world)
        world.run(scenario())


def test_a_connect_hangs_in_a_partition_and_succeeds_when_it_heals_in_time() -> None:
    async def scenario() -> None:
        await pair.listen()
        world.network.block("server", "client")
        begun = world.now
        with pytest.raises(TimeoutError):
            await pair.connect()
        assert world.now - begun == pytest.approx(20)
        world.scenario.loop.call_later(5, world.network.heal)
        await pair.connect()
        assert 25 < world.now - begun < 30

    with World(1) as world:
        pair = Pair(world)
        world.run(scenario())


def test_a_killed_process_leaves_what_it_had_sent_and_its_peers_notice_at_once() -> None:
    async def scenario() -> None:
        peer, accepted = await connected(pair)
        peer.transport.write(b"request")
        await world.until(lambda: bool(accepted.received))
        accepted.transport.write(b"last words")
        pair.server.kill()
        begun = world.now
        await world.until(lambda: peer.is_lost)
        assert world.now - begun < 0.1
        assert peer.received == b"last words"
        assert "lost" not in accepted.events, "no code of the dead runs"
        with pytest.raises(ConnectionRefusedError):
            await pair.connect()

    with World(1) as world:
        pair = Pair(world)
        world.run(scenario())


def test_a_machine_without_power_is_silent_and_knows_nobody_when_it_is_back() -> None:
    async def scenario() -> None:
        peer, _ = await connected(pair)
        pair.server.power_off()
        peer.transport.write(b"anybody?")
        await world.sleep(20)
        assert not peer.is_lost
        pair.server.boot()
        await world.until(lambda: peer.is_lost, within_s=2)
        assert isinstance(peer.lost_with, ConnectionResetError)
        with pytest.raises(ConnectionRefusedError):
            await pair.connect()
        await pair.listen()
        await pair.connect()

    with World(1) as world:
        pair = Pair(world)
        world.run(scenario())


def test_nothing_of_a_dead_host_runs_again_not_even_its_finally() -> None:
    ran: list[str] = []

    async def work(name: str) -> None:
        try:
            ran.append(f"{name} begins")
            await asyncio.get_running_loop().create_future()
        finally:
            ran.append(f"{name} ends")

    async def scenario() -> None:
        host.spawn(work("task"))
        host.loop.call_later(5, ran.append, "timer")
        host.loop.run_in_executor(None, ran.append, "work")
        host.loop.call_soon(world.scenario.loop.call_soon, host.kill)
        await world.sleep(10)
        assert ran == ["task begins"]
        with pytest.raises(HostDied):
            await host.run(work("late"))
        host.boot()
        host.spawn(work("new life"))
        await world.sleep(10)
        assert ran == ["task begins", "new life begins"]

    with World(1) as world:
        host = world.add_host("host")
        world.run(scenario())


def test_who_waits_for_a_host_that_dies_is_told() -> None:
    async def scenario() -> None:
        world.scenario.loop.call_later(3, host.power_off)
        with pytest.raises(HostDied):
            await host.run(world.sleep(10))
        assert world.now == pytest.approx(3)

    with World(1) as world:
        host = world.add_host("host")
        world.run(scenario())


def test_a_frozen_host_keeps_its_connections_and_does_everything_late() -> None:
    async def scenario() -> None:
        peer, accepted = await connected(pair)
        fired: list[float] = []
        for seconds in (1, 2, 50):
            pair.server.loop.call_later(seconds, lambda: fired.append(world.now))
        pair.server.freeze()
        frozen_at = world.now
        peer.transport.write(b"hello")
        other = await pair.connect()
        await world.sleep(10)
        assert not accepted.received
        assert not fired
        assert not peer.is_lost
        assert not other.is_lost
        assert len(pair.accepted) == 1
        pair.server.thaw()
        await world.sleep(1)
        assert accepted.received == b"hello"
        assert len(pair.accepted) == 2
        assert fired == [pytest.approx(frozen_at + 10, abs=0.1)] * 2
        await world.sleep(60)
        assert len(fired) == 3

    with World(1) as world:
        pair = Pair(world)
        world.run(scenario())


def test_broken_connections_are_reset_at_both_ends_and_others_are_not() -> None:
    async def scenario() -> None:
        peer, accepted = await connected(pair)
        bystander = await pair.connect(world.add_host("bystander"))
        pair.client.break_connections(pair.server)
        await world.sleep(1)
        assert isinstance(peer.lost_with, ConnectionResetError)
        assert isinstance(accepted.lost_with, ConnectionResetError)
        assert not bystander.is_lost

    with World(1) as world:
        pair = Pair(world)
        world.run(scenario())


def test_the_wall_clock_jumps_and_the_loop_does_not() -> None:
    with World(1) as world:
        host, other = world.add_host("host"), world.add_host("other")
        world.run_for(2.5)
        host.clock.jump(-60_000)
        assert host.clock.now_ms() - other.clock.now_ms() == -60_000
        assert host.loop.time() == other.loop.time() == 2.5


def test_a_power_cut_in_the_middle_of_a_write_takes_the_host_down_there_and_then() -> None:
    ran: list[str] = []
    left: set[bytes] = set()

    def write_all(disk: SimulatedDisk) -> None:
        disk.make_directory("/data")
        disk.sync_directory("/")
        file = disk.open("/data/log", create=True)
        disk.sync_directory("/data")
        file.append([b"synced "])
        file.sync()
        file.append([b"and not"])
        ran.append("survived")

    async def scenario() -> None:
        host.disk.steps_until_power_cut = 7
        with pytest.raises(HostDied):
            await host.run(in_thread())
        assert not host.is_alive
        host.boot()
        file = host.disk.open("/data/log")
        left.add(file.read(0, file.size())[:7])

    async def in_thread() -> None:
        await asyncio.get_running_loop().run_in_executor(None, write_all, host.disk)

    for seed in range(10):
        with World(seed) as world:
            host = world.add_host("host")
            world.run(scenario())
    assert not ran
    assert left == {b"synced "}


def test_work_in_threads_takes_time_and_hands_over_results_and_errors() -> None:
    def fail() -> None:
        raise OSError("bad disk")

    async def work() -> str:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        result = await asyncio.to_thread(lambda: "done")
        assert loop.time() > begun
        with pytest.raises(OSError, match="bad disk"):
            await loop.run_in_executor(None, fail)
        return result

    with World(1) as world:
        assert world.run(world.add_host("host").run(work())) == "done"


def test_an_exception_that_nobody_handles_fails_the_run_and_names_the_seed() -> None:
    with World(77) as world:
        host = world.add_host("host")
        host.loop.call_later(1, lambda: cast(list[int], [])[0])
        with pytest.raises(SimulationFailed, match=r"seed 77, 1\.000000 s, host host") as failure:
            world.run_for(10)
        assert isinstance(failure.value.__cause__, IndexError)


def test_a_spawned_task_that_fails_fails_the_run_at_once() -> None:
    async def broken() -> None:
        await world.sleep(1)
        raise ValueError("broken")

    with World(1) as world:
        world.add_host("host").spawn(broken())
        with pytest.raises(SimulationFailed, match="broken"):
            world.run_for(10)
        assert world.now == 1


def test_a_task_that_failed_unseen_fails_the_run_at_its_end() -> None:
    async def broken() -> None:
        raise ValueError("broken")

    def run() -> None:
        with World(1) as world:
            host = world.add_host("host")
            host.call_soon(lambda: asyncio.ensure_future(broken()) and None)
            world.run_for(1)

    with pytest.raises(SimulationFailed, match="broken"):
        run()


def test_a_loop_that_never_lets_time_pass_is_found() -> None:
    with World(1) as world:
        host = world.add_host("host")

        def again() -> None:
            host.loop.call_soon(again)

        again()
        with pytest.raises(AssertionError, match="time stands still"):
            world.run_for(1)
