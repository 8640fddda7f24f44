"""Connections that come too fast from one address: each waits by itself, for a second at most."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from quorate.transport.held_connections import MAX_HELD, MAX_HELD_OF_ADDRESS, HeldConnections
from tests.simulation.world.world import World


class Knock(msgspec.Struct, frozen=True, eq=False):
    address: str
    socket: socket.socket


class Door:
    """What is held, and when it is released; delays are as the test says."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun_s = self._loop.time()
        self.released: list[tuple[str, float, bool]] = []
        self.held: HeldConnections[Knock] = HeldConnections(self._loop, self, self._release)

    def delay_s(self, address: str, now_s: float, at_most_s: float) -> float | None:
        assert now_s >= self._begun_s
        return None if address == "far" else at_most_s / 2

    def knock(self, address: str, delay_s: float | None) -> bool:
        return self.held.hold(Knock(address, socket.socket()), delay_s)

    async def passes(self, seconds: float) -> None:
        later = self._loop.create_future()
        self._loop.call_later(seconds, later.set_result, None)
        await later

    def _release(self, knock: Knock, may_come_in: bool) -> None:
        knock.socket.close()
        self.released.append((knock.address, round(self._loop.time() - self._begun_s, 1), may_come_in))


def run(scenario: Callable[[Door], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        door = Door()
        await scenario(door)
        door.held.close()

    with World(1) as world:
        world.run(whole())


def test_each_is_released_at_its_time_whatever_came_before_it() -> None:
    async def scenario(door: Door) -> None:
        door.knock("a", 0.8)
        door.knock("b", None)
        door.knock("c", 0.2)
        await door.passes(0.1)
        door.knock("d", 0.2)
        await door.passes(2)
        assert door.released == [("c", 0.2, True), ("d", 0.3, True), ("a", 0.8, True), ("b", 1.0, False)]
        assert len(door.held) == 0

    run(scenario)


def test_one_address_does_not_take_the_room_of_others() -> None:
    async def scenario(door: Door) -> None:
        taken = [door.knock("a", None) for _ in range(50)]
        assert sum(taken) == MAX_HELD_OF_ADDRESS
        assert door.knock("b", 0.5)
        await door.passes(2)
        assert door.knock("a", 0.5)

    run(scenario)


def test_of_all_addresses_so_many_are_held_and_no_more() -> None:
    async def scenario(door: Door) -> None:
        taken = [door.knock(f"address-{number}", None) for number in range(300)]
        assert sum(taken) == MAX_HELD == len(door.held)

    run(scenario)


def test_nothing_is_held_any_more_after_the_end() -> None:
    async def scenario(door: Door) -> None:
        door.knock("a", 0.5)
        door.held.close()
        await door.passes(2)
        assert door.released == []

    run(scenario)
