"""The records that one decision makes, and the steps that all decisions about a consumer group share.

Each record counts at once for the steps that follow. Should the append fail, the group is made anew from the log.
"""

from collections.abc import Iterable, Mapping

from quorate.coordination.groups.core.consumer.assignment import ASSIGNORS, AssignmentProblem, reconcile
from quorate.coordination.groups.core.consumer.group import ConsumerGroup
from quorate.coordination.groups.core.consumer.records import (
    ConsumerGroupKey,
    ConsumerGroupRecord,
    ConsumerMember,
    CurrentAssignment,
    CurrentAssignmentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberKey,
    MemberRecord,
    PatternKey,
    PatternRecord,
    ResolvedPattern,
    TargetAssignment,
    TargetAssignmentRecord,
    TargetEpoch,
    TargetEpochRecord,
)
from quorate.coordination.groups.core.consumer.topics import ClusterTopics, Partitions, metadata_hash
from quorate.coordination.groups.core.records import CoordinatorRecord
from quorate.kernel.ids import MemberId, TopicId


class GroupUpdate:
    def __init__(self, group: ConsumerGroup, records: Iterable[CoordinatorRecord] = ()) -> None:
        """``records`` come first: what must happen to an earlier group of the same name."""
        self.group = group
        self.records = list(records)
        self._group_key = ConsumerGroupKey(group_id=group.group_id)

    def _add(self, record: ConsumerGroupRecord) -> None:
        self.group.replay(record)
        self.records.append(record)

    def _member_key(self, member_id: MemberId) -> MemberKey:
        return MemberKey(group_id=self.group.group_id, member_id=member_id)

    def put_member(self, member_id: MemberId, member: ConsumerMember) -> None:
        if self.group.members.get(member_id) != member:
            self._add(MemberRecord(key=self._member_key(member_id), value=member))

    def remove_member(self, member_id: MemberId) -> None:
        key = self._member_key(member_id)
        self._add(CurrentAssignmentRecord(key=key, value=None))
        self._add(TargetAssignmentRecord(key=key, value=None))
        self._add(MemberRecord(key=key, value=None))

    def set_epoch(self, epoch: int, hash_of_topics: int) -> None:
        self._add(GroupEpochRecord(key=self._group_key, value=GroupEpoch(epoch=epoch, metadata_hash=hash_of_topics)))

    def set_target_epoch(self, epoch: int, now_ms: int) -> None:
        self._add(TargetEpochRecord(key=self._group_key, value=TargetEpoch(epoch=epoch, timestamp_ms=now_ms)))

    def set_target(self, member_id: MemberId, partitions: Partitions) -> None:
        if self.group.targets.get(member_id) != partitions:
            value = TargetAssignment(partitions=partitions)
            self._add(TargetAssignmentRecord(key=self._member_key(member_id), value=value))

    def set_current(self, member_id: MemberId, current: CurrentAssignment) -> None:
        if self.group.current(member_id) != current:
            self._add(CurrentAssignmentRecord(key=self._member_key(member_id), value=current))

    def remove_group(self) -> None:
        """Tombstones for all that is left of the group."""
        for member_id in list(self.group.members):
            self.remove_member(member_id)
        for pattern in list(self.group.patterns):
            self._add(PatternRecord(key=PatternKey(group_id=self.group.group_id, pattern=pattern), value=None))
        self._add(TargetEpochRecord(key=self._group_key, value=None))
        self._add(GroupEpochRecord(key=self._group_key, value=None))

    def advance_epoch(self, topics: ClusterTopics, now_ms: int, *, has_changed: bool) -> None:
        """Move to another epoch if members or subscriptions have changed, or the topics that they subscribe to."""
        group = self.group
        if not has_changed and group.seen_topics_version == topics.version:
            return
        is_resolved = self._resolve_patterns(topics, now_ms)
        hash_of_topics = metadata_hash(topics, group.subscribed_topics())
        group.seen_topics_version = topics.version if is_resolved else None
        if has_changed or hash_of_topics != group.metadata_hash:
            self.set_epoch(group.epoch + 1, hash_of_topics)

    def _resolve_patterns(self, topics: ClusterTopics, now_ms: int) -> bool:
        """Returns whether all are resolved; what is not yet known keeps the topics that it had."""
        group = self.group
        for pattern in group.patterns.keys() - group.used_patterns():
            self._add(PatternRecord(key=PatternKey(group_id=group.group_id, pattern=pattern), value=None))
        for pattern in sorted(group.unresolved_patterns(topics.names_version)):
            found = topics.matching(pattern)
            if found is None:
                continue
            known = group.patterns.get(pattern)
            if known is None or known.topics != found:
                value = ResolvedPattern(topics=found, version=topics.names_version, timestamp_ms=now_ms)
                self._add(PatternRecord(key=PatternKey(group_id=group.group_id, pattern=pattern), value=value))
            group.note_lookup(pattern, topics.names_version)
        return not group.unresolved_patterns(topics.names_version)

    def assign(self, topics: ClusterTopics, default_assignor: str, now_ms: int) -> None:
        """Make the target assignment of the group's epoch, unless it is there."""
        group = self.group
        if group.target_epoch >= group.epoch:
            return
        assignor = ASSIGNORS[group.preferred_assignor(default_assignor)]
        for member_id, partitions in assignor(self._problem(topics)).items():
            self.set_target(member_id, partitions)
        self.set_target_epoch(group.epoch, now_ms)

    def _problem(self, topics: ClusterTopics) -> AssignmentProblem:
        counts: dict[TopicId, int] = {}
        ids = {}
        for name in self.group.subscribed_topics():
            shape = topics.shape(name)
            if shape is not None:
                ids[name], counts[shape.topic_id] = shape.topic_id, shape.partition_count
        # Static members are ordered by their instance ids, which outlive member ids.
        ordered = sorted(self.group.members.items(), key=lambda item: (item[1].instance_id or item[0], item[0]))
        subscriptions: Mapping[MemberId, frozenset[TopicId]] = {
            member_id: frozenset(ids[name] for name in self.group.subscription(member) if name in ids)
            for member_id, member in ordered
        }
        return AssignmentProblem(
            subscriptions=subscriptions, partition_counts=counts, previous=dict(self.group.targets)
        )

    def reconcile(self, member_id: MemberId, reported: Partitions | None) -> CurrentAssignment:
        """Take the member one step towards its target; returns where it stands then."""
        group = self.group
        current = reconcile(
            group.current(member_id),
            target_epoch=group.target_epoch,
            target=group.target(member_id),
            reported=reported,
            is_free=lambda partition: group.owner(partition) in (None, member_id),
        )
        self.set_current(member_id, current)
        return current


def tombstones_of(group: ConsumerGroup) -> tuple[CoordinatorRecord, ...]:
    """What ends a group that is to be removed; the group itself is left as it is."""
    update = GroupUpdate(group.copy())
    update.remove_group()
    return tuple(update.records)
