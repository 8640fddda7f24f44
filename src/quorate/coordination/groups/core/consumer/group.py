"""One consumer group as its records add up to it: ``replay`` alone changes what is replicated.

Its state is not stored. It follows from the group's epoch, which grows with every change of members, subscriptions or
topics, from the epoch that the target assignment was made for, and from where the members stand::

    Empty ──▶ Assigning ──▶ Reconciling ──▶ Stable
      ▲           ▲              │             │       back to Assigning with the next epoch,
      └───────────┴──────────────┴─────────────┘       and to Empty when the last member is gone

    ===========  =================================  ====================================================
    state        the group's epoch is               left when
    ===========  =================================  ====================================================
    Empty        of a group without members         a member joins
    Assigning    later than the target's            a heartbeat has the target made, with the same epoch
    Reconciling  the target's                       every member is at its target
    Stable       the target's, and every member's   a change gives the group its next epoch
    ===========  =================================  ====================================================

A member goes through states of its own (``MemberState``), a step with each of its heartbeats
(``assignment.reconcile``)::

    ======================  ==================================  ==========================================
    in                      and its target                      becomes
    ======================  ==================================  ==========================================
    any                     takes partitions away               UNREVOKED_PARTITIONS, its epoch as before
    UNREVOKED_PARTITIONS    and it still owns these             the same
    any                     has partitions that others hold     UNRELEASED_PARTITIONS, in the target's epoch
    any                     has nothing that others hold        STABLE, in the target's epoch
    ======================  ==================================  ==========================================
"""

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import assert_never

from quorate.coordination.groups.core.consumer.records import (
    ConsumerGroupRecord,
    ConsumerMember,
    CurrentAssignment,
    CurrentAssignmentRecord,
    GroupEpochRecord,
    MemberRecord,
    MemberState,
    PatternRecord,
    ResolvedPattern,
    TargetAssignmentRecord,
    TargetEpochRecord,
)
from quorate.coordination.groups.core.consumer.topics import NO_PARTITIONS, AssignedPartition, Partitions
from quorate.kernel.ids import GroupId, MemberId, TopicName

_NEW = CurrentAssignment()


class ConsumerGroupState(StrEnum):
    """Values are the names that ConsumerGroupDescribe and ListGroups put on the wire."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # The group has changed; nobody has asked for the next target assignment yet.
    RECONCILING = "Reconciling"  # Members are on their way to the target assignment.
    STABLE = "Stable"
    DEAD = "Dead"  # Only ever an answer: a group that is not there.


class ConsumerGroup:
    def __init__(self, group_id: GroupId) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.members: dict[MemberId, ConsumerMember] = {}
        self.target_epoch = 0
        self.targets: dict[MemberId, Partitions] = {}
        self.patterns: dict[str, ResolvedPattern] = {}
        self._current: dict[MemberId, CurrentAssignment] = {}
        # Who holds each partition, as assigned or as not yet revoked: never more than one member.
        self._owners: dict[AssignedPartition, MemberId] = {}
        self._instances: dict[str, MemberId] = {}
        # Not replicated: the version of the topics that this coordinator has last looked at for the group.
        self.seen_topics_version: int | None = None
        # Not replicated: which version of the names each pattern was last looked up in, whatever was found.
        self._looked_up: dict[str, int] = {}

    def copy(self) -> "ConsumerGroup":
        other = ConsumerGroup(self.group_id)
        other.epoch, other.metadata_hash, other.target_epoch = self.epoch, self.metadata_hash, self.target_epoch
        other.members, other.targets = dict(self.members), dict(self.targets)
        other.patterns, other._current = dict(self.patterns), dict(self._current)
        other._owners, other._instances = dict(self._owners), dict(self._instances)
        return other

    def replay(self, record: ConsumerGroupRecord) -> None:
        match record:
            case GroupEpochRecord(value=group_epoch):
                self.epoch = 0 if group_epoch is None else group_epoch.epoch
                self.metadata_hash = 0 if group_epoch is None else group_epoch.metadata_hash
            case TargetEpochRecord(value=target_epoch):
                self.target_epoch = 0 if target_epoch is None else target_epoch.epoch
            case MemberRecord():
                self._replay_member(record)
            case TargetAssignmentRecord(key=key, value=target):
                if target is None:
                    self.targets.pop(key.member_id, None)
                else:
                    self.targets[key.member_id] = target.partitions
            case CurrentAssignmentRecord():
                self._replay_current(record)
            case PatternRecord(key=pattern_key, value=resolved):
                if resolved is None:
                    self.patterns.pop(pattern_key.pattern, None)
                    self._looked_up.pop(pattern_key.pattern, None)
                else:
                    self.patterns[pattern_key.pattern] = resolved
            case _:
                assert_never(record)

    def _replay_member(self, record: MemberRecord) -> None:
        member_id = record.key.member_id
        before = self.members.pop(member_id, None)
        instance_id = None if before is None else before.instance_id
        # Another member may have taken the instance over in the meantime.
        if instance_id is not None and self._instances.get(instance_id) == member_id:
            del self._instances[instance_id]
        if record.value is None:
            return
        self.members[member_id] = record.value
        if record.value.instance_id is not None:
            self._instances[record.value.instance_id] = member_id

    def _replay_current(self, record: CurrentAssignmentRecord) -> None:
        member_id = record.key.member_id
        before = self._current.pop(member_id, None)
        for partition in NO_PARTITIONS if before is None else before.owned:
            if self._owners.get(partition) == member_id:
                del self._owners[partition]
        if record.value is not None:
            self._current[member_id] = record.value
            for partition in record.value.owned:
                self._owners[partition] = member_id

    @property
    def is_gone(self) -> bool:
        """Whether nothing is left of the group but tombstones."""
        return not (self.epoch or self.members or self.targets or self._current or self.patterns)

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(self._has_arrived(member_id) for member_id in self.members):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def _has_arrived(self, member_id: MemberId) -> bool:
        current = self.current(member_id)
        return current.state is MemberState.STABLE and current.member_epoch == self.target_epoch

    def current(self, member_id: MemberId) -> CurrentAssignment:
        return self._current.get(member_id, _NEW)

    def target(self, member_id: MemberId) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def owner(self, partition: AssignedPartition) -> MemberId | None:
        return self._owners.get(partition)

    def static_member(self, instance_id: str) -> MemberId | None:
        return self._instances.get(instance_id)

    def subscription(self, member: ConsumerMember) -> frozenset[TopicName]:
        """The topics that the member names, and those that its pattern was resolved to."""
        resolved = None if member.pattern is None else self.patterns.get(member.pattern)
        return member.topics if resolved is None else member.topics | resolved.topics

    def used_patterns(self) -> set[str]:
        return {member.pattern for member in self.members.values() if member.pattern}

    def unresolved_patterns(self, names_version: int) -> set[str]:
        """Patterns that members use and that were not looked up in this version of the topics' names."""
        return {pattern for pattern in self.used_patterns() if not self.is_resolved(pattern, names_version)}

    def note_lookup(self, pattern: str, names_version: int) -> None:
        self._looked_up[pattern] = names_version

    def is_resolved(self, pattern: str, names_version: int) -> bool:
        known = self.patterns.get(pattern)
        return known is not None and names_version in (known.version, self._looked_up.get(pattern))

    def subscribed_topics(self) -> frozenset[TopicName]:
        return frozenset().union(*(self.subscription(member) for member in self.members.values()))

    def preferred_assignor(self, default: str) -> str:
        """What most members ask for; the first by name of equals."""
        votes = Counter(member.server_assignor for member in self.members.values() if member.server_assignor)
        return min(votes, key=lambda name: (-votes[name], name)) if votes else default

    def classic_members(self) -> Iterator[MemberId]:
        return (member_id for member_id, member in self.members.items() if member.classic is not None)

    def waits_for_others(self, member_id: MemberId) -> bool:
        """Whether some of the member's target is still held by somebody else."""
        held = self.target(member_id) - self.current(member_id).assigned
        return any(self.owner(partition) not in (None, member_id) for partition in held)
