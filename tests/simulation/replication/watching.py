"""Checkers inside of the nodes: who leads, what counts as committed, and whether it is where it must be."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch
from uuid import UUID

from quorate.kernel.ids import NodeId, Offset, PartitionLeader
from quorate.kernel.settings import Durability
from quorate.replication import following, leading, partitions
from quorate.replication.core.leader import LeaderStart, ReplicationConfig
from quorate.replication.leading import Leading
from quorate.replication.partition import Partition
from tests.simulation.replication.clients import TOPIC
from tests.simulation.replication.cluster import ReplicatedCluster
from tests.simulation.replication.history import History, HistoryBroken

_Leadership = tuple[UUID, int, int]


class ReplicaWatch:
    def __init__(self, cluster: ReplicatedCluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        #: Replicas that have followed somebody in this life of their node, so that they have caught up since it began.
        self._followed: set[Partition] = set()
        #: Who leads in an epoch: a life of a node, so the partition object stands for it.
        self._leaderships: dict[_Leadership, Partition] = {}
        self._watermarks: dict[_Leadership, Offset] = {}
        self.advances = 0
        self.losses = 0
        self._broken: HistoryBroken | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        lead, follow, advanced = leading.lead, following.follow, Partition.advance_high_watermark

        def watched_lead(partition: Partition, start: LeaderStart, config: ReplicationConfig) -> None:
            lead(partition, start, config)
            self._judge(self._leads, partition)

        def watched_follow(partition: Partition, leader: PartitionLeader, *, is_unclean: bool) -> None:
            self._followed.add(partition)
            follow(partition, leader, is_unclean=is_unclean)

        def watched_advance(partition: Partition, offset: Offset) -> None:
            if isinstance(partition.role, Leading):
                self._judge(self._advances, partition, offset)
            advanced(partition, offset)

        with (
            patch.object(partitions, "lead", watched_lead),
            patch.object(partitions, "follow", watched_follow),
            patch.object(Partition, "advance_high_watermark", watched_advance),
        ):
            yield
        if self._broken is not None:
            raise self._broken

    def _judge(self, check: Callable[..., None], *args: object) -> None:
        """A node that met the finding would take it for a fault of its own and end: it is kept for the run's end."""
        try:
            check(*args)
        except HistoryBroken as broken:
            self._broken = self._broken or broken

    def _leads(self, partition: Partition) -> None:
        """At most one life of one node takes writes for a partition and leader epoch."""
        leadership = _leadership(partition)
        if self._leaderships.setdefault(leadership, partition) is not partition:
            raise HistoryBroken(f"two leaders of {partition} in epoch {partition.leader_epoch}")
        if partition.identity.topic == TOPIC:
            self._check_complete(partition)

    def _check_complete(self, partition: Partition) -> None:
        """A new leader has all that anybody was told of.

        Unless it alone was in sync, lost its power, and durability ``os`` leaves the writing to the operating system.
        """
        index, end = partition.identity.partition, partition.log.log_end_offset
        if end >= self._history.end_offset(index):
            return
        state = self._cluster.newest_image().partition(partition.identity.topic, index)
        if state is not None and state.leader_epoch > partition.leader_epoch:
            return  # It hears of its election when another one leads already.
        role = partition.role
        assert isinstance(role, Leading)
        node_id = role.leader.node_id
        if not (
            self._cluster.shape.durability is Durability.OS
            and self._cluster.hosts[node_id].was_off
            and role.isr == {node_id}
            and partition not in self._followed
        ):
            told = self._history.end_offset(index)
            raise HistoryBroken(f"node {node_id} leads {partition} with {end} records, where {told} were told of")
        self.losses += 1
        self._history.lose(index, end, partition.leader_epoch)

    def _advances(self, partition: Partition, offset: Offset) -> None:
        self.advances += 1
        leadership = _leadership(partition)
        before = self._watermarks.get(leadership, Offset(0))
        if offset < before:
            raise HistoryBroken(f"the watermark of {partition} moved back from {before} to {offset}")
        self._watermarks[leadership] = offset
        self._check_in_sync(partition, offset)

    def _check_in_sync(self, partition: Partition, offset: Offset) -> None:
        """Whoever may be elected next has what is committed, on its disk where that is promised."""
        identity = partition.identity
        state = self._cluster.newest_image().partition(identity.topic, identity.partition)
        if state is None or state.leader_epoch != partition.leader_epoch:
            return  # Deposed, and does not know it yet: its successor was in sync and has all of this.
        for node_id in state.isr:
            self._check_has(node_id, partition, offset)

    def _check_has(self, node_id: NodeId, partition: Partition, offset: Offset) -> None:
        replica = self._cluster.replica(node_id, partition.identity.topic, partition.identity.partition)
        if replica is None:
            return  # Down. What it has shows when it is back.
        log = replica.log
        end = log.synced_end_offset if self._cluster.shape.durability is Durability.FSYNC else log.log_end_offset
        if end < offset:
            raise HistoryBroken(f"{partition} is committed up to {offset}, but node {node_id} in sync has {end} only")


def _leadership(partition: Partition) -> _Leadership:
    return partition.identity.topic_id, partition.identity.partition, partition.leader_epoch
