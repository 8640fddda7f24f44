"""Records that were handed to the log and are not committed yet.

They are no state: nobody may read them. But what is decided next will come after them in the log, so decisions to
delete must count them in.
"""

from collections.abc import Iterator

from quorate.coordination.groups.core.effects import Append, PendingReply
from quorate.coordination.groups.core.records import CoordinatorRecord, GroupRecord, OffsetRecord
from quorate.kernel.ids import GroupId, TopicPartition


class InFlightAppends:
    def __init__(self) -> None:
        self._appends: list[Append] = []
        # Answers that show what an append changes, and so must not be given before it is committed.
        self._waiting: dict[Append, list[PendingReply]] = {}

    def add(self, append: Append) -> None:
        self._appends.append(append)

    def remove(self, append: Append) -> None:
        self._appends.remove(append)

    def last_for(self, group_id: GroupId) -> Append | None:
        """The newest append that changes the group."""
        for append in reversed(self._appends):
            if any(record.key.group_id == group_id for record in append.records):
                return append
        return None

    def reply_after(self, append: Append, reply: PendingReply) -> None:
        self._waiting.setdefault(append, []).append(reply)

    def take_waiting(self, append: Append) -> list[PendingReply]:
        return self._waiting.pop(append, [])

    def records_of(self, group_id: GroupId) -> Iterator[CoordinatorRecord]:
        for append in self._appends:
            yield from (record for record in append.records if record.key.group_id == group_id)

    def drain(self) -> list[Append]:
        drained, self._appends = self._appends, []
        return drained

    def stores_group(self, group_id: GroupId) -> bool:
        return any(isinstance(record, GroupRecord) for record in self._values_of(group_id))

    def offsets_of(self, group_id: GroupId) -> set[TopicPartition]:
        records = self._values_of(group_id)
        return {record.key.topic_partition for record in records if isinstance(record, OffsetRecord)}

    def _values_of(self, group_id: GroupId) -> Iterator[CoordinatorRecord]:
        for append in self._appends:
            for record in append.records:
                if record.key.group_id == group_id and record.value is not None:
                    yield record
