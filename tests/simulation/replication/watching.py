"""Checkers inside of the nodes: who leads, what counts as committed, and whether it is where it must be."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch
from uuid import UUID

from quorate.broker.config import Durability
from quorate.broker.partition import Partition
from quorate.kernel.ids import NodeId, Offset
from quorate.replication.leader import LeaderStart, ReplicationConfig
from tests.simulation.replication.cluster import ReplicatedCluster
from tests.simulation.replication.history import HistoryBroken

_Reign = tuple[UUID, int, int]


class ReplicaWatch:
    def __init__(self, cluster: ReplicatedCluster) -> None:
        self._cluster = cluster
        #: Who leads in an epoch: a life of a node, so the partition object stands for it.
        self._reigns: dict[_Reign, Partition] = {}
        self._watermarks: dict[_Reign, Offset] = {}
        self.advances = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        lead, advanced = Partition.lead, Partition.advance_high_watermark

        def watched_lead(partition: Partition, start: LeaderStart, config: ReplicationConfig) -> None:
            lead(partition, start, config)
            self._leads(partition)

        def watched_advance(partition: Partition, offset: Offset) -> None:
            if partition.leading is not None:
                self._advances(partition, offset)
            advanced(partition, offset)

        with (
            patch.object(Partition, "lead", watched_lead),
            patch.object(Partition, "advance_high_watermark", watched_advance),
        ):
            yield

    def _leads(self, partition: Partition) -> None:
        """At most one life of one node takes writes for a partition and leader epoch."""
        reign = _reign(partition)
        if self._reigns.setdefault(reign, partition) is not partition:
            raise HistoryBroken(f"two leaders of {partition} in epoch {partition.leader_epoch}")

    def _advances(self, partition: Partition, offset: Offset) -> None:
        self.advances += 1
        reign = _reign(partition)
        before = self._watermarks.get(reign, Offset(0))
        if offset < before:
            raise HistoryBroken(f"the watermark of {partition} moved back from {before} to {offset}")
        self._watermarks[reign] = offset
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
        replica = self._cluster.replica(node_id, partition.identity)
        if replica is None:
            return  # Down. What it has shows when it is back.
        log = replica.log
        end = log.synced_end_offset if self._cluster.durability is Durability.FSYNC else log.log_end_offset
        if end < offset:
            raise HistoryBroken(f"{partition} is committed up to {offset}, but node {node_id} in sync has {end} only")


def _reign(partition: Partition) -> _Reign:
    return partition.identity.topic_id, partition.identity.partition, partition.leader_epoch
