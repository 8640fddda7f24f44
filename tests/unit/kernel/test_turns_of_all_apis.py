"""Every API in every version, with its arrays full: no turn of the loop computes for long.

Processor time is compared with that of a fixed piece of work, measured here and now, so that neither the machine nor
its load matters. What is over the limit is asked again, as other work of the machine slows down computing too.
"""

import asyncio
import gc
from collections.abc import Iterator
from random import Random

import pytest

from quorate.broker.api import Api
from quorate.broker.handlers import APIS
from quorate.protocol.errors import ProtocolError
from quorate.protocol.frames import encode_request
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.transport.connection import CloseConnection
from tests.filled_requests import Shape, filled
from tests.simulation.disk import SimulatedDisk
from tests.simulation.simulated_node import SimulatedClock, SimulatedNode
from tests.turn_meter import TurnMeter, spare_workers, yardstick_s

ELEMENTS = 5_000
KNOWN_TOPICS = 100
BIG_PARTITIONS = 500
#: Some 20 ms, where the yardstick is 5 ms.
MOST_YARDSTICKS = 4
ATTEMPTS = 4


class MeteredNode:
    """A node that has some topics, one of them with many partitions."""

    def __init__(self) -> None:
        self.loop = TurnMeter()
        self.loop.run_until_complete(self._start())

    async def _start(self) -> None:
        random = Random(1)
        self.node = SimulatedNode(SimulatedDisk(random), SimulatedClock(), random)
        spare_workers(self.node.executor, self.loop)
        spare_workers(self.node.quorum_executor, self.loop)
        await self.node.start()
        topics = [
            CreatableTopic(name=f"known-{number}", num_partitions=1, replication_factor=1)
            for number in range(KNOWN_TOPICS)
        ]
        topics.append(CreatableTopic(name="big", num_partitions=BIG_PARTITIONS, replication_factor=1))
        answer = await self.node.call(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7, CreateTopicsResponse)
        assert not any(topic.error_code for topic in answer.topics)

    def longest_turn_s(self, frame: bytes) -> float:
        return self.loop.run_until_complete(self._longest_turn_s(frame))

    async def _longest_turn_s(self, frame: bytes) -> float:
        await asyncio.sleep(0)
        self.loop.longest_s = 0.0
        try:
            reply = self.node.dispatch(memoryview(bytearray(frame)))
            if isinstance(reply, asyncio.Future):
                await self.node.finish(reply)
        except CloseConnection:
            pass  # Too many elements: that is an answer, too.
        await asyncio.sleep(0)
        return self.loop.longest_s


@pytest.fixture(scope="module")
def metered() -> Iterator[MeteredNode]:
    node = MeteredNode()
    yield node
    node.loop.close()


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def name(field: str, number: int) -> str:
    """Topics are known and unknown by turns; patterns are none."""
    if "pattern" in field:
        return ""
    if "name" in field or "topic" in field:
        return "big" if number == 0 else f"known-{number}" if number < KNOWN_TOPICS else f"unknown-{number}"
    return f"{field}-{number}"


def frames(api: Api) -> Iterator[tuple[str, bytes]]:
    for version in range(api.min_version, api.max_version + 1):
        for shape in Shape:
            for nulls in {False, version == api.max_version}:
                request = filled(api.request, version, shape, ELEMENTS, name, nulls=nulls)
                try:
                    parts = encode_request(1, "client", request, version)
                except ProtocolError:
                    continue  # The version cannot carry it.
                yield f"version {version} {shape.value} nulls={nulls}", b"".join(bytes(part) for part in parts)[4:]


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.request.__name__)
def test_no_turn_computes_for_long_whatever_is_asked(metered: MeteredNode, api: Api) -> None:
    tried: set[bytes] = set()
    for what, frame in frames(api):
        if frame in tried:
            continue
        tried.add(frame)
        ratios: list[float] = []
        while not ratios or (min(ratios) > MOST_YARDSTICKS and len(ratios) < ATTEMPTS):
            yardstick = min(yardstick_s() for _ in range(2))
            ratios.append(metered.longest_turn_s(frame) / yardstick)
        assert min(ratios) <= MOST_YARDSTICKS, (what, len(frame), ratios)
