"""Voters whose metadata log was damaged: they are given it back, and until then nothing depends on them."""

import asyncio
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from quorate.quorum.core import roles
from quorate.quorum.core.messages import VoteRequest
from quorate.quorum.core.state import RaftState
from tests.simulation.cluster.cluster import Member, SimulatedCluster, scaled_down
from tests.simulation.cluster.faults import ClusterFaults
from tests.simulation.test_cluster_lost_disks import _agree_on_something, _shape
from tests.simulation.world.world import World

_LONG_S = 30.0


def flip_last_entries(cluster: SimulatedCluster, member: Member) -> None:
    """In the newest file of the metadata log, so that what was agreed on last cannot be read."""
    cluster.damage(member, flips=0)
    disk = member.host.disk
    name = max(name for name in disk.list_directory("/data/metadata-log") if name.endswith(".log"))
    path = f"/data/metadata-log/{name}"
    disk.rot(path, disk.open(path).size() - 30, 2)


async def _one_damaged_and_one_behind(cluster: SimulatedCluster) -> None:
    complete, damaged, behind = cluster.members
    await cluster.start(cluster.members)
    cluster.kill(behind)
    await _agree_on_something(complete)
    cluster.kill(complete)
    cluster.kill(damaged)
    flip_last_entries(cluster, damaged)

    starting = [asyncio.ensure_future(cluster.bring_up(member)) for member in (behind, damaged)]
    await cluster.world.sleep(_LONG_S)
    assert cluster.leader() is None, "a majority without what was agreed on went on"

    await cluster.bring_up(complete)
    await asyncio.gather(*starting)
    await _agree_on_something(behind)
    await cluster.world.until(lambda: not cluster.is_recovering(damaged), within_s=_LONG_S)
    cluster.kill(complete)
    await _agree_on_something(behind)  # The damaged one votes again.


def _run(seed: int) -> None:
    shape = _shape(seed, 5_000)
    with World(seed) as world, scaled_down(shape):
        world.run(_one_damaged_and_one_behind(SimulatedCluster(world, shape)))


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_damaged_voter_elects_nobody_who_missed_what_it_had_acknowledged(seed: int) -> None:
    _run(seed)


@contextmanager
def damaged_nodes_vote_at_once() -> Iterator[None]:
    may_vote = roles._may_vote_for

    def early(state: RaftState, request: VoteRequest) -> bool:
        with patch.object(state, "lost_log", None):
            return may_vote(state, request)

    with patch.object(roles, "_may_vote_for", early):
        yield


@pytest.mark.parametrize("seed", [5, 7])
def test_a_repaired_node_that_votes_too_early_is_found(seed: int) -> None:
    with (
        damaged_nodes_vote_at_once(),
        pytest.raises(Exception, match=r"leader completeness|state machine safety|went on"),
    ):
        _run(seed)


@pytest.mark.parametrize("seed", range(1, 4))
def test_where_a_majority_is_damaged_nodes_wait_and_say_what_is_missing(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        await cluster.start(cluster.members)
        await _agree_on_something(cluster.members[0])
        for member in cluster.members:
            cluster.kill(member)
        for member in cluster.members[:2]:
            flip_last_entries(cluster, member)
        starting = [asyncio.ensure_future(cluster.bring_up(member)) for member in cluster.members]
        await world.sleep(_LONG_S)
        assert not any(start.done() for start in starting)
        for start in starting:
            start.cancel()

    shape = _shape(seed, 5_000)
    with World(seed) as world, scaled_down(shape), caplog.at_level(logging.ERROR):
        cluster = SimulatedCluster(world, shape)
        world.run(scenario())
        told = [r.getMessage() for r in caplog.records if "quorum log incomplete after damage" in r.getMessage()]
        assert len(told) >= 4, "again and again, by both"
        for text in told:
            has, needs = (int(number) for number in re.findall(r"(?:has|needs)_offset=(\d+)", text))
            assert needs == has + 1, "the flipped entry"
        for member in cluster.members[:2]:
            assert "metadata-log.damaged" in member.host.disk.list_directory("/data")


@pytest.mark.parametrize("seed", range(1, 4))
def test_faults_that_overlap_damage_no_second_voter_before_the_first_has_what_it_lost(seed: int) -> None:
    async def scenario() -> None:
        await cluster.start(cluster.members)
        faults = ClusterFaults(cluster)
        rotting = [asyncio.ensure_future(faults.rot()) for _ in range(3)]
        await world.sleep(0)
        assert sum(map(cluster.lacks_something, cluster.members)) == 1
        await asyncio.gather(*rotting)
        await _agree_on_something(cluster.members[0])
        await world.until(lambda: not any(map(cluster.lacks_something, cluster.members)), within_s=_LONG_S)

    shape = _shape(seed, 5_000)
    with World(seed) as world, scaled_down(shape):
        cluster = SimulatedCluster(world, shape)
        world.run(scenario())
