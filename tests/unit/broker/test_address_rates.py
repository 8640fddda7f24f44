"""``connection_creation_rate``: which address has which, and what is kept of them."""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorate.broker.address_rates import AddressQuotas, AddressRates, HostLookUp
from quorate.kernel.ids import Offset
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.quota_entities import QuotaEntityPart
from quorate.metadata.core.rate_quotas import MOST_MEASURED
from quorate.metadata.core.records import ClientQuotaChanged
from tests.simulation.simulated_node import QueuedExecutor
from tests.simulation.world.world import World

HERE, THERE = "10.0.0.7", "10.0.0.8"
WINDOW_MS = 10_000.0


def delays(rates: AddressRates, count: int, address: str = HERE, now_s: float = 100.0) -> list[float | None]:
    return [rates.delay_s(address, now_s, 1.0) for _ in range(count)]


def test_without_quotas_nobody_is_held_back_and_nothing_is_kept() -> None:
    rates = AddressRates(WINDOW_MS)
    assert delays(rates, 1000) == [0.0] * 1000
    assert rates.measured_count == 0


def test_a_windows_worth_comes_at_once_and_more_one_after_the_other() -> None:
    rates = AddressRates(WINDOW_MS)
    rates.use({HERE: 2.0}, None)
    assert delays(rates, 20) == [0.0] * 20
    assert delays(rates, 4) == [0.5, 1.0, None, None]
    assert delays(rates, 100, THERE) == [0.0] * 100


def test_what_is_turned_away_is_not_counted() -> None:
    rates = AddressRates(WINDOW_MS)
    rates.use({}, 1.0)
    delays(rates, 1000)
    assert delays(rates, 2, now_s=103.0) == [0.0, 0.0]


def test_the_default_is_for_each_address_by_itself_but_for_those_that_are_named() -> None:
    rates = AddressRates(WINDOW_MS)
    rates.use({THERE: 100.0}, 1.0)
    assert delays(rates, 11)[10] == 1.0
    assert delays(rates, 11, "10.0.0.9")[10] == 1.0
    assert delays(rates, 11, THERE)[10] == 0.0


def test_a_changed_rate_counts_from_the_next_connection_on() -> None:
    rates = AddressRates(WINDOW_MS)
    rates.use({HERE: 1.0}, None)
    delays(rates, 11)
    rates.use({HERE: 10.0}, None)
    assert delays(rates, 1) == [0.0]
    rates.use({}, None)
    assert rates.measured_count == 0


def test_addresses_that_have_paid_off_are_forgotten() -> None:
    rates = AddressRates(WINDOW_MS)
    rates.use({}, 1.0)
    for number in range(20_000):
        rates.delay_s(f"address-{number}", number * 0.1, 1.0)
    assert rates.measured_count < 3_000


def test_very_many_addresses_at_once_take_no_more_memory_than_there_is_a_bound_for() -> None:
    rates = AddressRates(WINDOW_MS)
    rates.use({}, 1.0)
    for number in range(200_000):
        rates.delay_s(f"address-{number}", 100.0, 1.0)
    assert rates.measured_count <= MOST_MEASURED


class Node:
    """Its quotas follow the metadata; names are known to the test."""

    def __init__(self) -> None:
        self.names = {"known.example": [HERE, "2001:db8::7"], "other.example": [THERE]}
        self.asked: list[str] = []
        self.workers = QueuedExecutor()
        self.image = MetadataImage()
        self.hosts = HostLookUp(asyncio.get_running_loop(), self.workers, self._look_up)
        self.start()

    def start(self) -> None:
        self.quotas = AddressQuotas(WINDOW_MS, self.image, self.hosts, asyncio.get_running_loop())

    def _look_up(self, host: str) -> list[str]:
        self.asked.append(host)
        if host not in self.names:
            raise socket.gaierror(-2, "Name or service not known")
        return self.names[host]

    def limit(self, name: str | None, rate: float | None) -> None:
        change = ClientQuotaChanged(entity=(QuotaEntityPart("ip", name),), key="connection_creation_rate", value=rate)
        self.image, delta = self.image.replay([change], Offset(self.image.version + 1))
        self.quotas.metadata_changed(self.image, delta)

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
            while self.workers.queue:
                self.workers.run(0)

    def is_held_back(self, address: str) -> bool:
        return delays(self.quotas.rates, 11, address)[10] != 0.0


def run(scenario: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await scenario(Node())

    with World(1) as world:
        world.run(whole())


def test_addresses_are_the_same_however_they_are_written() -> None:
    async def scenario(node: Node) -> None:
        node.limit("2001:0DB8:0:0::0001", 1.0)
        node.limit("::ffff:10.0.0.9", 1.0)
        assert node.is_held_back("2001:db8::1")
        assert node.is_held_back("10.0.0.9")
        assert node.asked == []

    run(scenario)


def test_a_host_name_is_looked_up_and_limits_each_of_its_addresses() -> None:
    async def scenario(node: Node) -> None:
        node.limit("known.example", 1.0)
        await node.settle()
        assert node.is_held_back(HERE)
        assert node.is_held_back("2001:db8::7")
        assert not node.is_held_back(THERE)
        node.limit(None, 1000.0)
        await node.settle()
        assert node.asked == ["known.example"]

    run(scenario)


def test_a_host_is_looked_up_when_the_node_starts() -> None:
    async def scenario(node: Node) -> None:
        node.limit("known.example", 1.0)
        await node.settle()
        node.start()
        await node.settle()
        assert node.is_held_back(HERE)
        assert node.asked == ["known.example"] * 2

    run(scenario)


def test_an_address_that_is_named_itself_has_that_quota() -> None:
    async def scenario(node: Node) -> None:
        node.limit("known.example", 1.0)
        node.limit(HERE, 1000.0)
        await node.settle()
        assert not node.is_held_back(HERE)

    run(scenario)


def test_a_host_that_is_not_found_is_told_and_limits_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: Node) -> None:
        node.limit("gone.example", 1.0)
        await node.settle()
        assert not node.is_held_back(HERE)

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert "quota without effect entity=ip host='gone.example'" in caplog.text


def test_a_quota_that_is_taken_away_while_its_host_is_looked_up_does_not_come_back() -> None:
    async def scenario(node: Node) -> None:
        node.limit("known.example", 1.0)
        node.limit("known.example", None)
        await node.settle()
        assert not node.is_held_back(HERE)

    run(scenario)


def test_one_host_is_looked_up_at_a_time_whoever_gives_up_waiting() -> None:
    async def scenario(node: Node) -> None:
        waiting = [asyncio.ensure_future(node.hosts.find(name)) for name in ("known.example", "other.example")]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(node.workers.queue) == 1
        await node.settle()
        assert await waiting[1] == (THERE,)

    run(scenario)
