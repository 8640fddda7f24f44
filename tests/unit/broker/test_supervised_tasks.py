"""Whatever runs in the background of a node: when it dies, the log names it, or the node says that it cannot go on."""

import asyncio
import logging
from collections.abc import Iterator
from random import Random

import pytest

from quorate.broker.node import RunningNode
from quorate.kernel.tasks import TaskScope
from tests.simulation.disk import SimulatedDisk
from tests.simulation.simulated_node import SimulatedClock, SimulatedNode, settle

#: Of a node by itself, and what becomes of the death of their tasks.
SCOPES = {
    "ActiveController._tasks": "controller failed",
    "AddressQuotas._tasks": "look-up of a host in a quota failed",
    "AutomaticBalance._tasks": "automatic balance failed",
    "BrokerRegistration._heartbeats": "node failed",
    "CredentialWatch._tasks": "node failed",
    "DiskWatch._tasks": "proof that the disk has room failed",
    "FileCheck._tasks": "node failed",
    "HostLookUp._tasks": "look-up of a host failed",
    "Housekeeping._tasks": "cleaning failed",
    "IsrProposals._tasks": "node failed",
    "Leadership._tasks": "decision of the controller failed",
    "LogIntegrity._tasks": "node failed",
    "MembershipUpkeep._tasks": "upkeep of the membership failed",
    "ProducerTurns._tasks": "turn of a producer whose client has gone failed",
    "RecordOpening._tasks": "write of opened records failed",
    "Scrub._tasks": "node failed",
    "TransactionVerifier._tasks": "verification of transactions failed",
}


class Killed(Exception):
    pass


async def die() -> None:
    raise Killed("by the test")


def scopes_of(root: object) -> dict[str, TaskScope]:
    """Every scope that can be reached from the node by way of its parts."""
    found: dict[str, TaskScope] = {}
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        owner = waiting.pop()
        if id(owner) in seen:
            continue
        seen.add(id(owner))
        for name, part in attributes(owner):
            if isinstance(part, TaskScope):
                found[f"{type(owner).__name__}.{name}"] = part
            elif type(part).__module__.startswith("quorate."):
                waiting.append(part)
    return found


def attributes(owner: object) -> Iterator[tuple[str, object]]:
    names = [*vars(owner)] if hasattr(owner, "__dict__") else []
    for name in [*names, *getattr(type(owner), "__struct_fields__", ()), *getattr(type(owner), "__slots__", ())]:
        if hasattr(owner, name):
            yield name, getattr(owner, name)


async def start_node() -> RunningNode:
    random = Random(1)
    node = SimulatedNode(SimulatedDisk(random), SimulatedClock(), random)
    await node.start()
    return node.node


def test_every_scope_of_a_node_is_in_the_list() -> None:
    async def scenario() -> None:
        assert sorted(scopes_of(await start_node())) == sorted(SCOPES)

    asyncio.run(scenario())


@pytest.mark.parametrize(("scope", "line"), SCOPES.items())
def test_a_task_of_a_node_that_dies_is_named(scope: str, line: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        node = await start_node()
        scopes_of(node)[scope].spawn(die())
        await settle()
        is_end = line == "node failed"
        assert isinstance(node.end.failure, Killed) is node.end.is_due.is_set() is is_end

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert any(record.getMessage().startswith(line) for record in caplog.records)
