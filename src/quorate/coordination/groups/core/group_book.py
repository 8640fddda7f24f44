"""All that a shard knows of its groups: the log's word, live membership, and what is on its way."""

from quorate.coordination.groups.core.classic_group import ClassicGroup
from quorate.coordination.groups.core.consumer.group import ConsumerGroup
from quorate.coordination.groups.core.group_state import GroupState
from quorate.coordination.groups.core.in_flight import InFlightAppends
from quorate.coordination.groups.core.replicated_state import ReplicatedState
from quorate.kernel.ids import GroupId, TopicPartition


class GroupBook:
    def __init__(self) -> None:
        self.state = ReplicatedState()
        # Every stored group is live too. One that is only live has members that no generation was stored for.
        self.live: dict[GroupId, ClassicGroup] = {}
        # Consumer groups, with what is on its way to the log counted in. A group is here or in ``live``, never in both.
        self.consumer: dict[GroupId, ConsumerGroup] = {}
        self.in_flight = InFlightAppends()

    def group(self, group_id: GroupId) -> ClassicGroup | ConsumerGroup | None:
        return self.consumer.get(group_id) or self.live.get(group_id)

    def group_ids(self) -> list[GroupId]:
        return sorted(self.state.group_ids() | self.live.keys() | self.consumer.keys())

    def exists(self, group_id: GroupId) -> bool:
        return group_id in self.live or group_id in self.consumer or bool(self.known_offsets(group_id))

    def known_offsets(self, group_id: GroupId) -> set[TopicPartition]:
        """The partitions with an offset, in the log or on its way there, in a transaction or not."""
        committed, pending = self.state.offsets_of(group_id).keys(), self.state.pending.of_group(group_id)
        return committed | pending | self.in_flight.offsets_of(group_id)

    def has_members(self, group_id: GroupId) -> bool:
        consumer = self.consumer.get(group_id)
        if consumer is not None and consumer.members:
            return True
        group = self.live.get(group_id)
        return group is not None and (group.state is not GroupState.EMPTY or bool(group.pending_members))

    def drop_if_gone(self, group_id: GroupId) -> None:
        """Forget the live group that the log no longer knows, unless members have come back meanwhile."""
        is_stored = self.state.stored_group(group_id) is not None or self.in_flight.stores_group(group_id)
        if not is_stored and not self.has_members(group_id):
            self.live.pop(group_id, None)
