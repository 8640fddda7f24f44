"""Voters that come back with an empty disk: whoever else is there, nothing that was agreed on is lost with it."""

import asyncio

import msgspec
import pytest

from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import PartitionIndex, TopicName
from quorate.metadata.core.command_codec import encode_commands
from quorate.metadata.core.commands import AllocateProducerIds, Command, CreateTopic, DeleteTopic, UnregisterBroker
from quorate.quorum.core.leader_requests import Done, LeaderRequest, Remove, Submit, Submitted
from tests.simulation.cluster.cluster import Member, SimulatedCluster, scaled_down
from tests.simulation.cluster.shape import Shape, draw_shape
from tests.simulation.world.world import World

#: Far longer than an election or a start takes.
_LONG_S = 10.0


def _shape(seed: int, entries_between_snapshots: int, learners: int = 0) -> Shape:
    shape = draw_shape(seed, ("none",))
    while len(shape.voters) != 3 or len(shape.learners) != learners:
        seed += 1_000
        shape = draw_shape(seed, ("none",))
    return msgspec.structs.replace(shape, entries_between_snapshots=entries_between_snapshots)


async def _ask(member: Member, request: LeaderRequest) -> object:
    assert member.node is not None
    return await member.host.run(member.node.quorum.ask(request, timeout_ms=5_000))


async def _submit(member: Member, command: Command) -> None:
    answer = await _ask(member, Submit(commands=encode_commands([command]), validate_only=False))
    assert isinstance(answer, Submitted)


async def _agree_on_something(member: Member) -> None:
    await _submit(member, AllocateProducerIds())


@pytest.mark.parametrize("entries_between_snapshots", [4, 5_000])
@pytest.mark.parametrize("seed", range(1, 5))
def test_a_voter_that_lost_its_disk_elects_nobody_who_missed_what_it_had_acknowledged(
    seed: int, entries_between_snapshots: int
) -> None:
    """The one that missed it starts from its log, and nobody has told it yet how far that is committed."""

    async def scenario() -> None:
        complete, emptied, behind = cluster.members
        await cluster.start(cluster.members)
        cluster.kill(behind)
        await _agree_on_something(complete)
        cluster.kill(complete)
        cluster.lose_disk(emptied)

        starting = [asyncio.ensure_future(cluster.bring_up(member)) for member in (behind, emptied)]
        await world.sleep(_LONG_S)
        assert not any(start.done() for start in starting), "a majority without what was agreed on went on"

        await cluster.bring_up(complete)
        await starting[0]
        await _agree_on_something(behind)
        assert not starting[1].done()

        assert isinstance(await _ask(complete, Remove(node_id=emptied.node_id)), Done)
        await _submit(complete, UnregisterBroker(node_id=emptied.node_id))
        await starting[1]
        await world.until(lambda: emptied.view.image.version == cluster.truth.latest.version, within_s=_LONG_S)

    shape = _shape(seed, entries_between_snapshots)
    with World(seed) as world, scaled_down(shape):
        cluster = SimulatedCluster(world, shape)
        world.run(scenario())


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_voter_that_lost_its_disk_is_kept_out_although_it_was_unregistered_as_a_broker(seed: int) -> None:
    """What it had acknowledged as a voter still counts, for as long as it is one."""

    async def scenario() -> None:
        complete, emptied, behind = cluster.members
        await cluster.start(cluster.members)
        cluster.lose_disk(emptied)
        await _submit(complete, UnregisterBroker(node_id=emptied.node_id))
        cluster.kill(behind)

        starting = asyncio.ensure_future(cluster.bring_up(emptied))
        await world.sleep(_LONG_S)
        assert not starting.done()
        assert cluster.leader() is None, "the vote of a voter that lost its disk was counted"

        await cluster.bring_up(behind)
        assert isinstance(await _ask(complete, Remove(node_id=emptied.node_id)), Done)
        await starting

    shape = _shape(seed, 5_000)
    with World(seed) as world, scaled_down(shape):
        cluster = SimulatedCluster(world, shape)
        world.run(scenario())


@pytest.mark.parametrize("seed", range(1, 3))
def test_a_node_that_lost_what_only_it_had_is_told_so_when_it_joins_anew(seed: int) -> None:
    async def scenario() -> None:
        other, emptied, _ = cluster.members
        await cluster.start(cluster.members)
        alone = {PartitionIndex(0): (emptied.node_id,)}
        await _submit(other, CreateTopic(name=TopicName("alone"), assignments=alone))
        cluster.lose_disk(emptied)
        starting = asyncio.ensure_future(cluster.bring_up(emptied))
        await _ask(other, Remove(node_id=emptied.node_id))
        await _submit(other, UnregisterBroker(node_id=emptied.node_id, even_with_replicas=True))

        with pytest.raises(QuorateError, match="alone-0, wait for what only it had"):
            await starting

        cluster.kill(emptied)
        await _submit(other, DeleteTopic(topic_id=cluster.truth.latest.topics[TopicName("alone")].topic_id))
        await cluster.bring_up(emptied)

    shape = _shape(seed, 5_000)
    with World(seed) as world, scaled_down(shape):
        cluster = SimulatedCluster(world, shape)
        world.run(scenario())


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_node_that_lost_its_disk_is_let_in_by_nobody_not_even_by_one_that_does_not_know_of_it(seed: int) -> None:
    """A voter that has missed when it joined cannot tell what it has lost, but whoever has joined knows that voter."""

    async def scenario() -> None:
        *others, behind, joined = cluster.members
        await cluster.start([*others, behind])
        world.network.partition([behind.host.name], [other.host.name for other in others])
        await cluster.start([joined])
        cluster.lose_disk(joined)
        starting = asyncio.ensure_future(cluster.bring_up(joined))
        assert behind.node is not None
        peers = behind.node.peers
        await world.sleep(_LONG_S)
        assert not peers.is_connected(joined.node_id)

        world.network.heal()
        await world.until(lambda: joined.node_id in behind.view.image.brokers, within_s=_LONG_S)
        await world.sleep(_LONG_S)

        assert not peers.is_connected(joined.node_id)
        assert not starting.done()

    shape = _shape(seed, 5_000, learners=1)
    with World(seed) as world, scaled_down(shape):
        cluster = SimulatedCluster(world, shape)
        world.run(scenario())
