"""How soon a broker that is gone is known to be gone: at once where its process ended, after its session otherwise."""

import pytest

from tests.simulation.cluster.cluster import Member, SimulatedCluster, scaled_down
from tests.simulation.cluster.shape import Shape, draw_shape
from tests.simulation.world.world import World

#: Well below the session, well above an election.
_FAST_S = 1.0


def _shape(seed: int, voters: int = 3) -> Shape:
    shape = draw_shape(seed, ("none",))
    while len(shape.voters) != voters or shape.session_ms < 3_000 or shape.learners:
        seed += 1_000
        shape = draw_shape(seed, ("none",))
    return shape


def _is_fenced(cluster: SimulatedCluster, gone: Member) -> bool:
    return all(not m.view.image.is_live(gone.node_id) for m in cluster.members if m is not gone)


@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_a_killed_broker_is_fenced_long_before_its_session_ends(seed: int, leads: bool) -> None:
    shape = _shape(seed)

    async def scenario() -> None:
        await cluster.start(cluster.members)
        leader = cluster.leader()
        assert leader is not None
        gone = leader if leads else next(member for member in cluster.members if member is not leader)
        cluster.kill(gone)
        await world.until(lambda: _is_fenced(cluster, gone), within_s=_FAST_S)

    with World(seed) as world, scaled_down(shape):
        cluster = SimulatedCluster(world, shape)
        world.run(scenario())


@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_a_frozen_broker_is_fenced_after_its_session_and_not_before(seed: int, leads: bool) -> None:
    shape = _shape(seed)
    session_s = shape.session_ms / 1000

    async def scenario() -> None:
        await cluster.start(cluster.members)
        leader = cluster.leader()
        assert leader is not None
        gone = leader if leads else next(member for member in cluster.members if member is not leader)
        await world.sleep(shape.heartbeat_ms / 1000 * 2)
        gone.host.freeze()
        await world.sleep(session_s - shape.heartbeat_ms / 1000 - 0.1)
        assert not _is_fenced(cluster, gone)
        await world.until(lambda: _is_fenced(cluster, gone), within_s=session_s + 2 * _FAST_S)
        gone.host.thaw()
        await world.until(lambda: cluster.truth.latest.is_live(gone.node_id), within_s=session_s)

    with World(seed) as world, scaled_down(shape):
        cluster = SimulatedCluster(world, shape)
        world.run(scenario())


@pytest.mark.parametrize("beats_before", [4.0, 4.5, 8.5, 9.0, 9.5])
def test_a_leader_that_was_frozen_itself_takes_nobody_for_gone(beats_before: float) -> None:
    """Its own broker's heartbeats stood still too: fenced, it would have no place for a new topic."""
    shape = _shape(1, voters=1)
    for pause_ms in range(shape.session_ms - shape.heartbeat_ms, shape.session_ms + shape.heartbeat_ms, 50):
        _freeze_the_only_node(shape, beats_before, pause_ms)


def _freeze_the_only_node(shape: Shape, beats_before: float, pause_ms: int) -> None:
    async def scenario() -> None:
        await cluster.start(cluster.members)
        (member,) = cluster.members
        await world.sleep(shape.heartbeat_ms / 1000 * beats_before)
        member.host.freeze()
        await world.sleep(pause_ms / 1000)
        member.host.thaw()
        for _ in range(50):
            await world.sleep(shape.session_ms / 1000 / 50)
            assert cluster.truth.latest.is_live(member.node_id), f"fenced after a pause of {pause_ms} ms"

    with World(1) as world, scaled_down(shape):
        cluster = SimulatedCluster(world, shape)
        world.run(scenario())
