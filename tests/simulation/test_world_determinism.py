"""One seed, one run: the same trace in processes with different hash seeds and memory layouts."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from tests.simulation.test_world_node import crash_and_check
from tests.simulation.world.link import LinkSettings
from tests.simulation.world.world import World

ROOT = Path(__file__).resolve().parents[2]
_RUN = "from tests.simulation.test_world_determinism import {name}; print({name}({seed}))"


def mixed_run(seed: int) -> str:
    """Tasks that asyncio keeps in sets, connections, work in threads, faults; returns the digest of the trace."""
    with World(seed, link=LinkSettings(loss_probability=0.05)) as world:
        hosts = [world.add_host(f"host-{number}") for number in range(4)]
        for host in hosts:
            host.spawn(_serve(world, host.name))
        world.run_for(0.1)
        for host in hosts:
            host.spawn(_pester(world, host.name, [other.name for other in hosts if other is not host]))
        world.run_for(1)
        world.network.block("host-0", "host-1")
        hosts[2].freeze()
        world.run_for(1)
        hosts[2].thaw()
        hosts[3].kill()
        world.network.heal()
        world.run_for(1)
        return f"{world.trace.digest()} {world.trace.count} {world.scheduler.steps}"


def node_run(seed: int) -> str:
    with World(seed) as world:
        world.run(crash_and_check(world, world.add_host("node"), loses_power=True))
        return f"{world.trace.digest()} {world.trace.count} {world.scheduler.steps}"


async def _serve(world: World, name: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                await asyncio.to_thread(str, line)
                writer.write(line)
        except ConnectionError as error:
            world.trace.note(f"{name} lost a connection: {error}")
        writer.close()

    await asyncio.start_server(answer, name, 7)


async def _pester(world: World, name: str, others: list[str]) -> None:
    """Ask all others at once, cancel those that are slow, again and again."""

    async def ask(other: str) -> None:
        try:
            reader, writer = await asyncio.open_connection(other, 7)
            writer.write(f"from {name}\n".encode())
            await reader.readline()
            writer.close()
        except OSError as error:
            world.trace.note(f"{name} asks {other}: {error!r}")
        finally:
            world.trace.note(f"{name} is done with {other}")

    async def give_up(after_s: float) -> None:
        await world.sleep(after_s)
        raise TimeoutError

    for round_number in range(20):
        try:
            async with asyncio.TaskGroup() as group:
                for other in others * 3:
                    group.create_task(ask(other))
                group.create_task(give_up(0.002 + round_number % 10 / 1000))
        except* TimeoutError:
            pass
        _, pending = await asyncio.wait(
            [asyncio.ensure_future(world.sleep(number % 3 / 100)) for number in range(9)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        for task in pending:
            task.cancel()


def in_process(name: str, seed: int, hash_seed: int) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(sys.path)}
    # Another memory layout, so that an order by address shows as well.
    padding = f"kept = [object() for _ in range({hash_seed * 1013})]; "
    command = [sys.executable, "-c", padding + _RUN.format(name=name, seed=seed)]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def test_a_seed_gives_one_run_whatever_the_hash_seed() -> None:
    for name in ("mixed_run", "node_run"):
        runs = {in_process(name, 5, hash_seed) for hash_seed in (1, 77)}
        assert len(runs) == 1, f"{name}: {runs}"


def test_another_seed_gives_another_run() -> None:
    assert mixed_run(1) == mixed_run(1)
    assert mixed_run(1) != mixed_run(2)


def test_time_without_events_costs_nothing() -> None:
    with World(1) as world:
        for name in ("a", "b", "c"):
            loop = world.add_host(name).loop

            def tick(loop: asyncio.AbstractEventLoop = loop) -> None:
                loop.call_later(10, tick)

            tick()
        world.run_for(1000)
        assert world.scheduler.steps <= 300
