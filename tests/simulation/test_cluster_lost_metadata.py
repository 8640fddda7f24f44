"""The metadata log lost on some or all nodes, or restored from an old copy: no log of a live topic is deleted."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from random import Random
from unittest.mock import patch

import pytest

from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId, PartitionIndex, TopicId, TopicName
from quorate.metadata.core.commands import CreateTopic
from quorate.metadata.core.image import MetadataImage
from quorate.quorum import raft_storage, recovery_plan
from tests.simulation.cluster.cluster import Member, SimulatedCluster, scaled_down
from tests.simulation.cluster.kept_logs import KeptLogs
from tests.simulation.test_cluster_left_logs import create, fill_a_snapshot, folders
from tests.simulation.test_cluster_lost_disks import _shape, _submit
from tests.simulation.world.world import World

_LONG_S = 10.0
_SEEDS = range(1, 9)
#: Besides the log, more and more of what tells that there was one.
_LOST_WITH_IT = (
    (),
    ("quorum-snapshot", "quorum-acknowledged"),
    ("quorum-snapshot", "quorum-acknowledged", "quorum-state"),
    ("quorum-snapshot", "quorum-acknowledged", "quorum-state", "meta.properties", "meta.properties.copy"),
)
CASES = {"a minority": (1, False), "a majority": (2, False), "all": (3, False), "an old copy": (3, True)}


class _Lost:
    """What happens to the metadata of the first members while all are down."""

    def __init__(self, cluster: SimulatedCluster, case: str, random: Random) -> None:
        count, self._is_old_copy = CASES[case]
        self._random = random
        self._members = cluster.members[: random.randint(1, 3) if self._is_old_copy else count]
        self._copies: dict[NodeId, object] = {}

    def copy(self) -> None:
        for member in self._members:
            folder = member.host.disk._folder("/data")
            assert folder is not None
            self._copies[member.node_id] = deepcopy(folder.now["metadata-log"])

    def lose(self) -> None:
        for member in self._members:
            disk = member.host.disk
            for name in self._random.choice(_LOST_WITH_IT):
                disk.remove(f"/data/{name}")
            disk.remove_tree("/data/metadata-log")
            if self._is_old_copy:
                folder = disk._folder("/data")
                assert folder is not None
                folder.change({"metadata-log": self._copies[member.node_id]})  # type: ignore[dict-item]
            disk.sync_directory("/data")


async def _start_again(cluster: SimulatedCluster, member: Member) -> None:
    """As whoever runs the node does, who finds it refused."""
    try:
        await cluster.bring_up(member)
    except QuorateError:
        cluster.kill(member)


async def _scenario(cluster: SimulatedCluster, case: str, random: Random, *, after_loss: Callable[[], None]) -> None:
    one = cluster.members[0]
    lost = _Lost(cluster, case, random)
    await cluster.start(cluster.members)
    if random.random() < 0.5:
        await create(cluster, *cluster.members)
    lost.copy()
    if "orders" not in cluster.truth.latest.topics:
        await create(cluster, *cluster.members)
    for number in range(random.randint(0, 3)):
        replicas = {PartitionIndex(0): tuple(member.node_id for member in random.sample(cluster.members, 2))}
        await _submit(one, CreateTopic(name=TopicName(f"other-{number}"), assignments=replicas))
    if random.random() < 0.5:
        await fill_a_snapshot(one)
    await cluster.world.until(lambda: all(folders(m) == ["orders-0"] for m in cluster.members), within_s=_LONG_S)
    for member in cluster.members:
        cluster.kill(member)
    lost.lose()
    after_loss()
    starting = [asyncio.ensure_future(_start_again(cluster, member)) for member in cluster.members]
    await cluster.world.sleep(2 * _LONG_S)
    for start in starting:
        start.cancel()
    for member in cluster.members:
        assert folders(member), f"the log of node {member.node_id} is gone"


def _run(case: str, seed: int, after_loss: Callable[[SimulatedCluster], None]) -> None:
    shape = _shape(seed, 4 if seed % 2 else 5_000)
    with World(seed) as world, scaled_down(shape):
        cluster = SimulatedCluster(world, shape)
        world.run(_scenario(cluster, case, Random(seed), after_loss=lambda: after_loss(cluster)))


def _leave_only_kept_logs(cluster: SimulatedCluster) -> None:
    """The other checkers would see as well that nodes go on without what they had agreed on."""
    cluster._raft_checkers._checkers = ()
    cluster.truth.check_image = lambda node_id, image: None  # type: ignore[method-assign]


@pytest.mark.parametrize("case", CASES)
def test_no_log_of_a_live_topic_is_deleted_where_metadata_is_lost_on(case: str) -> None:
    """An old copy is not known as such where all that would tell it is gone too: then nodes go on from there."""
    for seed in _SEEDS:
        try:
            _run(case, seed, _leave_only_kept_logs if case == "an old copy" else lambda _: None)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


@contextmanager
def unknown_logs_are_deleted() -> Iterator[None]:
    """Nodes start whatever they have lost, and delete what their metadata does not know."""
    was_removed = MetadataImage.was_removed

    def or_unknown(self: MetadataImage, topic_id: TopicId, partition: PartitionIndex, node: NodeId) -> bool:
        return self.topic_by_id(topic_id) is None or was_removed(self, topic_id, partition, node)

    with ExitStack() as patches:
        patches.enter_context(patch.object(MetadataImage, "was_removed", or_unknown))
        patches.enter_context(patch.object(raft_storage, "find_missing_log", lambda *_: None))
        patches.enter_context(patch.object(recovery_plan, "find_missing_knowledge", lambda *_: None))
        yield


@pytest.mark.parametrize("case", ["a majority", "all", "an old copy"])
def test_the_checker_finds_nodes_that_delete_what_they_do_not_know(case: str) -> None:
    with unknown_logs_are_deleted():
        for seed in range(1, 40):
            try:
                _run(case, seed, _leave_only_kept_logs)
            except Exception as error:
                if KeptLogs.name in str(error):
                    return
    pytest.fail("no seed has found it")
