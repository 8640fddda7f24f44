"""Logs of topics that were deleted, and of replicas that moved away, while their node was down: they free its disk.

Whatever the metadata merely does not know is set aside instead.
"""

import logging
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

import pytest

from quorate.kernel.ids import NodeId, PartitionIndex, Term, TopicId, TopicName
from quorate.metadata.core.commands import AlterPartitionReassignments, CreateTopic, DeleteTopic, PartitionReassignment
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.snapshot import encode_image
from quorate.quorum.core.entries import Snapshot, SnapshotMeta
from quorate.quorum.core.membership import Membership
from quorate.storage.checkpoints import write_topic_id
from tests.simulation.cluster.cluster import Member, SimulatedCluster, scaled_down
from tests.simulation.test_cluster_lost_disks import _agree_on_something, _shape, _submit
from tests.simulation.world.world import World

_LONG_S = 10.0
ORDERS = TopicName("orders")
UNKNOWN = TopicId(UUID(int=77))


def folders(member: Member) -> list[str]:
    """The logs of topics that clients made, and what was set aside."""
    return [name for name in member.host.disk.list_directory("/data") if name.startswith(ORDERS)]


def leave_log(member: Member, name: str, topic_id: TopicId = UNKNOWN) -> None:
    disk = member.host.disk
    disk.make_directory(f"/data/{name}")
    disk.sync_directory("/data")
    file = disk.open(write_topic_id(disk, f"/data/{name}", topic_id))
    file.sync()
    disk.sync_directory(f"/data/{name}")


async def create(cluster: SimulatedCluster, *members: Member) -> TopicId:
    replicas = {PartitionIndex(0): tuple(member.node_id for member in members)}
    asked = next(member for member in cluster.members if member.running_node)
    await _submit(asked, CreateTopic(name=ORDERS, assignments=replicas))
    return cluster.truth.latest.topics[ORDERS].topic_id


async def fill_a_snapshot(member: Member) -> None:
    for _ in range(10):
        await _agree_on_something(member)


async def move(cluster: SimulatedCluster, member: Member, *targets: NodeId) -> None:
    change = PartitionReassignment(topic=ORDERS, partition=PartitionIndex(0), replicas=targets)
    await _submit(member, AlterPartitionReassignments(reassignments=(change,)))
    await cluster.world.until(
        lambda: cluster.truth.latest.topics[ORDERS].partitions[PartitionIndex(0)].replicas == targets, within_s=_LONG_S
    )


@pytest.fixture(params=[4, 5_000], ids=["in-a-snapshot", "in-the-log"])
def entries_between_snapshots(request: pytest.FixtureRequest) -> int:
    count = request.param
    assert isinstance(count, int)
    return count


def run(entries_between_snapshots: int, scenario: Any) -> None:
    shape = _shape(3, entries_between_snapshots)
    with World(3) as world, scaled_down(shape):
        cluster = SimulatedCluster(world, shape)
        work: Coroutine[Any, Any, None] = scenario(cluster)
        world.run(work)


def test_a_topic_deleted_while_its_node_is_down_frees_the_disk(entries_between_snapshots: int) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        one, other, down = cluster.members
        await cluster.start(cluster.members)
        topic_id = await create(cluster, one, other, down)
        await cluster.world.until(lambda: folders(down) == ["orders-0"], within_s=_LONG_S)
        cluster.kill(down)
        await _submit(one, DeleteTopic(topic_id=topic_id))
        await fill_a_snapshot(one)
        await cluster.bring_up(down)
        await cluster.world.until(lambda: [folders(m) for m in cluster.members] == [[], [], []], within_s=_LONG_S)

    run(entries_between_snapshots, scenario)


def test_a_topic_made_anew_while_a_node_is_down_leaves_nothing_of_the_old_one(entries_between_snapshots: int) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        one, other, down = cluster.members
        await cluster.start(cluster.members)
        topic_id = await create(cluster, one, other, down)
        await cluster.world.until(lambda: folders(down) == ["orders-0"], within_s=_LONG_S)
        cluster.kill(down)
        await _submit(one, DeleteTopic(topic_id=topic_id))
        await create(cluster, one, other, down)
        await fill_a_snapshot(one)
        await cluster.bring_up(down)
        await cluster.world.until(lambda: folders(down) == ["orders-0"], within_s=_LONG_S)

    run(entries_between_snapshots, scenario)


def test_a_replica_moved_away_while_its_node_is_down_frees_the_disk(entries_between_snapshots: int) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        one, other, down = cluster.members
        await cluster.start(cluster.members)
        await create(cluster, one, down)
        await cluster.world.until(lambda: folders(down) == ["orders-0"], within_s=_LONG_S)
        cluster.kill(down)
        await move(cluster, one, one.node_id, other.node_id)
        await fill_a_snapshot(one)
        await cluster.bring_up(down)
        await cluster.world.until(lambda: folders(down) == [], within_s=_LONG_S)
        assert folders(one) == folders(other) == ["orders-0"]

    run(entries_between_snapshots, scenario)


def test_what_the_metadata_does_not_know_is_set_aside_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        one, other, down = cluster.members
        await cluster.start(cluster.members)
        topic_id = await create(cluster, one, other)
        cluster.kill(down)
        leave_log(down, "orders-7")
        leave_log(down, "orders-0", topic_id)  # The topic is known, but not that this node ever had a replica of it.
        with caplog.at_level(logging.ERROR):
            await cluster.bring_up(down)
        assert folders(down) == [f"orders-0.{topic_id.hex}-stray", f"orders-7.{UNKNOWN.hex}-stray"]
        told = [record.getMessage() for record in caplog.records if "log set aside" in record.getMessage()]
        assert len(told) == 2
        cluster.kill(down)
        await cluster.bring_up(down)
        assert len(folders(down)) == 2

    run(5_000, scenario)


def test_a_snapshot_that_lacks_a_topic_deletes_nothing() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        one, *_ = cluster.members
        await cluster.start(cluster.members)
        topic_id = await create(cluster, *cluster.members)
        await cluster.world.until(lambda: folders(one) == ["orders-0"], within_s=_LONG_S)
        assert one.node is not None
        before = one.node.metadata.image
        lacking = MetadataImage(version=before.version, cluster_id=before.cluster_id, brokers=before.brokers)

        meta = SnapshotMeta(before.version, Term(1), Membership.of([]))
        del one.node.metadata._show  # It is not what the cluster has agreed on, and nobody is to check it.
        one.node.metadata.install(Snapshot(meta, encode_image(lacking)))

        await cluster.world.until(lambda: folders(one) == [f"orders-0.{topic_id.hex}-stray"], within_s=_LONG_S)
        cluster.kill(one)

    run(5_000, scenario)
