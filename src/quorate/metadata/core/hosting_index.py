"""Keeps the index from nodes to the partitions they hold in step with the partitions.

The draft of one replay: only the nodes and topics that a batch touches are copied.
"""

from collections.abc import Mapping

import msgspec

from quorate.kernel.ids import NodeId, PartitionIndex, TopicId
from quorate.metadata.core.image_parts import HostedPartitions, PartitionState


class HostingDraft:
    def __init__(self, base: Mapping[NodeId, HostedPartitions]) -> None:
        self._base = base
        self._touched: dict[NodeId, _NodeDraft] = {}

    def move(
        self, topic_id: TopicId, partition: PartitionIndex, old: PartitionState | None, new: PartitionState | None
    ) -> None:
        """The partition went from one state to another; None stands for a partition that is not there."""
        if old is not None and new is not None and (old.replicas, old.leader) == (new.replicas, new.leader):
            return
        if old is not None:
            self._count(old, -1)
        if new is not None:
            self._count(new, 1)
        old_replicas = () if old is None else old.replicas
        new_replicas = () if new is None else new.replicas
        for node in old_replicas:
            if node not in new_replicas:
                self._node(node).indexes(topic_id).discard(partition)
        for node in new_replicas:
            if node not in old_replicas:
                self._node(node).indexes(topic_id).add(partition)

    def finish(self) -> Mapping[NodeId, HostedPartitions]:
        if not self._touched:
            return self._base
        hosted = dict(self._base)
        for node, draft in self._touched.items():
            if draft.replica_count:
                hosted[node] = draft.finish()
            else:
                hosted.pop(node, None)
        return hosted

    def _count(self, state: PartitionState, step: int) -> None:
        for node in state.replicas:
            self._node(node).replica_count += step
        self._node(state.replicas[0]).preferred_count += step
        if state.has_leader:
            self._node(state.leader).leader_count += step

    def _node(self, node: NodeId) -> "_NodeDraft":
        draft = self._touched.get(node)
        if draft is None:
            draft = self._touched[node] = _NodeDraft(self._base.get(node) or HostedPartitions())
        return draft


class _NodeDraft:
    def __init__(self, base: HostedPartitions) -> None:
        self._base = base
        self._touched: dict[TopicId, set[PartitionIndex]] = {}
        self.replica_count = base.replica_count
        self.leader_count = base.leader_count
        self.preferred_count = base.preferred_count

    def indexes(self, topic_id: TopicId) -> set[PartitionIndex]:
        touched = self._touched.get(topic_id)
        if touched is None:
            touched = self._touched[topic_id] = set(self._base.replicas.get(topic_id, ()))
        return touched

    def finish(self) -> HostedPartitions:
        return msgspec.structs.replace(
            self._base,
            replicas=self._replicas(),
            replica_count=self.replica_count,
            leader_count=self.leader_count,
            preferred_count=self.preferred_count,
        )

    def _replicas(self) -> Mapping[TopicId, frozenset[PartitionIndex]]:
        if not self._touched:
            return self._base.replicas
        replicas = dict(self._base.replicas)
        for topic_id, indexes in self._touched.items():
            if indexes:
                replicas[topic_id] = frozenset(indexes)
            else:
                replicas.pop(topic_id, None)
        return replicas
