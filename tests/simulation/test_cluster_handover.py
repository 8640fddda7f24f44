"""A quorum leader that is told to stop hands over first: nobody has to find out that it is gone, and elect."""

import asyncio

import pytest

from quorate.quorum.core.ready import Role
from tests.simulation.cluster.cluster import Member, SimulatedCluster, scaled_down
from tests.simulation.cluster.shape import Shape, draw_shape
from tests.simulation.world.world import World


def _shape(seed: int, voters: int) -> Shape:
    shape = draw_shape(seed, ("none",))
    while len(shape.voters) != voters or shape.session_ms < 3_000 or shape.learners:
        seed += 1_000
        shape = draw_shape(seed, ("none",))
    return shape


def _elected(cluster: SimulatedCluster) -> Member | None:
    """Whoever has won an election, also if the first entry is not yet agreed on."""
    leaders = [m for m in cluster.present if (n := m.running_node) and n.quorum.driver.state.role is Role.LEADER]
    return leaders[0] if leaders else None


@pytest.mark.parametrize("voters", [3, 5])
@pytest.mark.parametrize("seed", range(1, 3))
def test_the_quorum_has_another_leader_before_its_leader_has_stopped(seed: int, voters: int) -> None:
    async def scenario() -> None:
        await cluster.start(cluster.members)
        for _ in range(voters):
            await world.sleep(1)
            leader = cluster.leader()
            assert leader is not None
            await cluster.stop(leader)
            assert _elected(cluster), "nobody leads where the leader has stopped"
            await cluster.bring_up(leader)

    with World(seed) as world, scaled_down(_shape(seed, voters)):
        cluster = SimulatedCluster(world, _shape(seed, voters))
        world.run(scenario())


@pytest.mark.parametrize("seed", range(1, 3))
def test_a_successor_that_does_not_answer_is_passed_over(seed: int) -> None:
    async def scenario() -> None:
        await cluster.start(cluster.members)
        await world.sleep(1)
        leader = cluster.leader()
        assert leader is not None
        others = [member for member in cluster.members if member is not leader]
        for silent in others[:2]:
            silent.host.freeze()
        await cluster.stop(leader)
        assert _elected(cluster) in others[2:]

    with World(seed) as world, scaled_down(_shape(seed, 5)):
        cluster = SimulatedCluster(world, _shape(seed, 5))
        world.run(scenario())


@pytest.mark.parametrize("seed", range(1, 3))
def test_nodes_that_stop_together_do_not_wait_for_each_other(seed: int) -> None:
    async def scenario() -> None:
        await cluster.start(cluster.members)
        await world.sleep(1)
        began = world.now
        await asyncio.gather(*(cluster.stop(member) for member in cluster.members))
        assert world.now - began < 5

    with World(seed) as world, scaled_down(_shape(seed, 3)):
        cluster = SimulatedCluster(world, _shape(seed, 3))
        world.run(scenario())
