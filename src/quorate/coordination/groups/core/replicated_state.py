"""What the log of one ``__consumer_offsets`` partition says: stored groups, and offsets, committed or pending.

``replay`` and ``end_transaction`` alone change it, on a leader (once the record is committed) and while loading alike.
"""

from collections.abc import Iterator, Mapping

from quorate.coordination.groups.core.consumer.group import ConsumerGroup
from quorate.coordination.groups.core.consumer.records import ConsumerGroupRecord
from quorate.coordination.groups.core.records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupRecord,
    OffsetRecord,
    StoredGroup,
    offset_record,
)
from quorate.kernel.ids import NO_PRODUCER_ID, GroupId, ProducerId, TopicPartition

_NO_OFFSETS: Mapping[TopicPartition, CommittedOffset] = {}


class PendingOffsets:
    """Offsets that were committed in transactions: nobody sees them before their transaction is committed.

    A transactional batch adds to them, and the marker that ends the transaction makes them the group's committed
    offsets, or drops them.
    """

    def __init__(self) -> None:
        # None: another offset was committed outside of the transaction since. This one is still pending, but will
        # never be used.
        self._by_producer: dict[ProducerId, dict[tuple[GroupId, TopicPartition], CommittedOffset | None]] = {}

    def add(self, producer_id: ProducerId, record: OffsetRecord) -> None:
        if record.value is not None:
            pending = self._by_producer.setdefault(producer_id, {})
            pending[record.key.group_id, record.key.topic_partition] = record.value

    def overrule(self, record: OffsetRecord) -> None:
        """A later record outside of any transaction counts instead of what is pending; a tombstone ends that."""
        key = record.key.group_id, record.key.topic_partition
        for producer_id, pending in list(self._by_producer.items()):
            if key not in pending:
                continue
            if record.value is not None:
                pending[key] = None
                continue
            del pending[key]
            if not pending:
                del self._by_producer[producer_id]

    def end(self, producer_id: ProducerId) -> list[OffsetRecord]:
        """End the producer's transaction; returns what it wrote, which is no longer pending."""
        pending = self._by_producer.pop(producer_id, {})
        return [
            offset_record(group_id, topic_partition, value)
            for (group_id, topic_partition), value in pending.items()
            if value is not None
        ]

    def of_group(self, group_id: GroupId) -> set[TopicPartition]:
        if not self._by_producer:
            return set()
        return {topic_partition for pending_group, topic_partition in self._keys() if pending_group == group_id}

    def group_ids(self) -> set[GroupId]:
        return {group_id for group_id, _ in self._keys()}

    def _keys(self) -> Iterator[tuple[GroupId, TopicPartition]]:
        for pending in self._by_producer.values():
            yield from pending


class ReplicatedState:
    def __init__(self) -> None:
        self._groups: dict[GroupId, StoredGroup] = {}
        self._consumer_groups: dict[GroupId, ConsumerGroup] = {}
        self._offsets: dict[GroupId, dict[TopicPartition, CommittedOffset]] = {}
        self.pending = PendingOffsets()

    def replay(self, record: CoordinatorRecord, producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        """``producer_id`` names the transaction that the record was written in."""
        if isinstance(record, OffsetRecord):
            if producer_id == NO_PRODUCER_ID:
                self.pending.overrule(record)
                self._replay_offset(record)
            else:
                self.pending.add(producer_id, record)
        elif isinstance(record, GroupRecord):
            self._replay_group(record)
        else:
            self._replay_consumer_group(record)

    def end_transaction(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        for record in self.pending.end(producer_id):
            if is_commit:
                self._replay_offset(record)

    def _replay_offset(self, record: OffsetRecord) -> None:
        group_id = record.key.group_id
        if record.value is not None:
            self._offsets.setdefault(group_id, {})[record.key.topic_partition] = record.value
            return
        offsets = self._offsets.get(group_id, {})
        offsets.pop(record.key.topic_partition, None)
        if not offsets:
            self._offsets.pop(group_id, None)

    def _replay_group(self, record: GroupRecord) -> None:
        if record.value is not None:
            self._groups[record.key.group_id] = record.value
        else:
            self._groups.pop(record.key.group_id, None)

    def _replay_consumer_group(self, record: ConsumerGroupRecord) -> None:
        group_id = record.key.group_id
        group = self._consumer_groups.get(group_id) or ConsumerGroup(group_id)
        group.replay(record)
        if group.is_gone:
            self._consumer_groups.pop(group_id, None)
        else:
            self._consumer_groups[group_id] = group

    def consumer_group(self, group_id: GroupId) -> ConsumerGroup | None:
        return self._consumer_groups.get(group_id)

    def consumer_groups(self) -> Iterator[tuple[GroupId, ConsumerGroup]]:
        return iter(self._consumer_groups.items())

    def stored_group(self, group_id: GroupId) -> StoredGroup | None:
        return self._groups.get(group_id)

    def stored_groups(self) -> Iterator[tuple[GroupId, StoredGroup]]:
        return iter(self._groups.items())

    def offsets_of(self, group_id: GroupId) -> Mapping[TopicPartition, CommittedOffset]:
        return self._offsets.get(group_id, _NO_OFFSETS)

    def group_ids(self) -> set[GroupId]:
        return self._groups.keys() | self._offsets.keys() | self._consumer_groups.keys() | self.pending.group_ids()
