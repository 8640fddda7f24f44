"""The start of a node, where it does not get to its end, and when a node is to end."""

import asyncio
import logging
from random import Random

import pytest

from quorate.broker.config import NodeConfig
from quorate.broker.node import Environment, NodeEnd
from quorate.broker.start import start_node
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.quorum.errors import NotQuorumLeader
from quorate.quorum.quorum import Quorum
from tests.simulation.disk import SimulatedDisk
from tests.simulation.simulated_node import ADDRESS, DATA_DIR, QueuedExecutor, SimulatedClock, settle

CONFIG = NodeConfig(node_id=NodeId(7), data_dir=DATA_DIR, listen=ADDRESS)


def test_a_start_that_is_cancelled_stops_the_quorum_that_it_has_begun() -> None:
    async def scenario() -> None:
        seen: list[Quorum] = []
        executor = QueuedExecutor()
        random = Random(1)
        environment = Environment(
            loop=asyncio.get_running_loop(),
            clock=SimulatedClock(),
            disk=SimulatedDisk(random),
            executor=executor,
            quorum_executor=executor,
            random=random,
            on_quorum=seen.append,
        )
        starting = asyncio.ensure_future(start_node(CONFIG, environment, NodeEnd(CONFIG.node_id)))
        while not seen:
            await settle()
            if executor.queue:
                executor.run(0)
        await settle()
        assert not starting.done()  # It waits for the quorum to agree on its registration.

        starting.cancel()
        while not starting.done():
            await settle()
            if executor.queue:
                executor.run(0)

        assert starting.cancelled()
        with pytest.raises(NotQuorumLeader, match="the node stops"):
            await seen[0].driver.read_offset()

    asyncio.run(scenario())


def test_the_first_failure_is_why_a_node_ends(caplog: pytest.LogCaptureFixture) -> None:
    end = NodeEnd(NodeId(7))
    end.check()

    with caplog.at_level(logging.CRITICAL):
        end.fail(OSError("the disk"))
        end.fail(RuntimeError("what depends on it"))

    assert end.is_due.is_set()
    assert [record.getMessage() for record in caplog.records] == ["node failed node=7 error=the disk"]
    with pytest.raises(QuorateError, match="node 7 cannot go on: the disk"):
        end.check()


def test_a_node_that_is_asked_to_end_has_not_failed() -> None:
    end = NodeEnd(NodeId(7))
    assert not end.is_due.is_set()

    end.ask_for()

    assert end.is_due.is_set()
    end.check()
