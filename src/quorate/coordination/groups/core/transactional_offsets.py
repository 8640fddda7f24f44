"""Offsets that were committed in transactions: nobody sees them before their transaction is committed.

They are part of what the log says: a transactional batch adds to them, and the marker that ends the transaction makes
them the group's committed offsets or drops them.
"""

from collections.abc import Iterator

from quorate.coordination.groups.core.records import CommittedOffset, OffsetRecord, offset_record
from quorate.kernel.ids import GroupId, ProducerId, TopicPartition


class PendingOffsets:
    def __init__(self) -> None:
        # None stands for an offset after which another was committed outside of the transaction: it is still pending,
        # but what comes of it is nothing.
        self._by_producer: dict[ProducerId, dict[tuple[GroupId, TopicPartition], CommittedOffset | None]] = {}

    def add(self, producer_id: ProducerId, record: OffsetRecord) -> None:
        if record.value is not None:
            pending = self._by_producer.setdefault(producer_id, {})
            pending[record.key.group_id, record.key.topic_partition] = record.value

    def committed_outside(self, record: OffsetRecord) -> None:
        """A record without a transaction comes later in the log, so it counts; a tombstone ends what is pending too."""
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
        """The transaction has ended: what it wrote, which is no longer pending."""
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
