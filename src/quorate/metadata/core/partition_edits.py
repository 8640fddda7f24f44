"""The new states of partitions that one decision gathers, and their records.

Each changed partition gives one record, whatever the number of its edits; its epochs are reckoned here and only here.
"""

import msgspec

from quorate.kernel.ids import LeaderEpoch
from quorate.metadata.core.image import MetadataImage, PartitionState, TopicIdPartition
from quorate.metadata.core.records import PartitionChanged


class PartitionEdits:
    """Later edits of a decision see the earlier ones. Whoever edits sets no epochs: they follow from the change."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._edits: dict[TopicIdPartition, _Edit] = {}

    def current(self, name: TopicIdPartition) -> PartitionState:
        edit = self._edits.get(name)
        return self._original(name) if edit is None else edit.state

    def change(
        self, name: TopicIdPartition, new: PartitionState, *, unclean: bool = False, even_if_same: bool = False
    ) -> PartitionState:
        """Make this the partition's state. The leader epoch grows by one if leadership changed in any edit.

        It grows, too, where a replica goes: it deletes its log, and if it comes back in the same reign, the leader
        would take what it said before for what it has.

        ``even_if_same`` gives a new partition epoch to a state that does not change, which rules out for good every
        proposal made from the old one.
        """
        before = self.current(name)
        if new == before and not even_if_same:
            return before
        original = self._original(name)
        edit = self._edits.get(name)
        loses_replica = not set(before.replicas) <= set(new.replicas)
        leads_anew = loses_replica or new.leader != before.leader or (edit is not None and edit.leads_anew)
        state = msgspec.structs.replace(
            new,
            leader_epoch=LeaderEpoch(original.leader_epoch + leads_anew),
            partition_epoch=original.partition_epoch + 1,
        )
        self._edits[name] = _Edit(
            state=state, leads_anew=leads_anew, unclean=unclean or (edit is not None and edit.unclean)
        )
        return state

    def records(self) -> tuple[PartitionChanged, ...]:
        return tuple(partition_record(name, edit.state, unclean=edit.unclean) for name, edit in self._edits.items())

    def _original(self, name: TopicIdPartition) -> PartitionState:
        return self._image.topics[name.topic].partitions[name.partition]


class _Edit(msgspec.Struct, frozen=True, kw_only=True):
    state: PartitionState
    leads_anew: bool
    unclean: bool


def partition_record(name: TopicIdPartition, state: PartitionState, *, unclean: bool = False) -> PartitionChanged:
    """The state as it follows from the one before; a snapshot adds what does not."""
    return PartitionChanged(
        topic_id=name.topic_id,
        partition=name.partition,
        replicas=state.replicas,
        isr=state.isr,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        adding_replicas=state.adding_replicas,
        removing_replicas=state.removing_replicas,
        unclean=unclean,
    )
