"""The rebalance of one classic group: from joins to a generation, from the leader's assignment to Stable.

Everything here is live state that the members can rebuild by joining again. What must outlive this coordinator is in
the ``StoredGroup`` that goes to the log when a rebalance completes. ``classic_requests`` holds what
each request may do to a group; this module holds what the requests and the timers have in common. The states and the
moves between them are in ``classic_protocol``.
"""

from collections.abc import Mapping

from quorate.coordination.core.effects import AppendToLog, CancelTimer, Reply, SetTimer
from quorate.coordination.groups.core.classic_protocol import VALID_PREVIOUS_STATES, GroupState
from quorate.coordination.groups.core.commands import JoinedMember, JoinGroupResult, SyncGroupResult
from quorate.coordination.groups.core.config import GroupConfig
from quorate.coordination.groups.core.effects import Effect, RebalanceTimer, SessionTimer
from quorate.coordination.groups.core.members import ClassicMember, Roster
from quorate.coordination.groups.core.records import StoredGroup, group_record
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, MemberId


class ClassicGroup:
    def __init__(self, group_id: GroupId, config: GroupConfig) -> None:
        self.group_id = group_id
        self.config = config
        self.state = GroupState.EMPTY
        self.state_timestamp_ms: int | None = None
        self.generation = 0  # Only grows.
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None  # Set in CompletingRebalance and Stable.
        self.roster = Roster()
        # Member ids that were given out and have not joined yet (KIP-394), and when they lapse.
        self.pending_members: dict[MemberId, int] = {}
        # Members that have not asked for the assignment of this generation.
        self.unsynced_members: set[MemberId] = set()
        self.assignment_in_flight = False
        self._phase_deadline_ms: int | None = None
        # How much longer the first rebalance of an empty group may wait for more members; set while it waits.
        self._initial_delay_left_ms: int | None = None
        self._joined_during_initial_delay = False

    @classmethod
    def from_stored(cls, group_id: GroupId, stored: StoredGroup, config: GroupConfig) -> "ClassicGroup":
        group = cls(group_id, config)
        group.generation = stored.generation
        group.protocol_type = stored.protocol_type or None
        group.protocol_name = stored.protocol_name
        group.state_timestamp_ms = stored.state_timestamp_ms if stored.state_timestamp_ms >= 0 else None
        for member in stored.members:
            group.roster.add(ClassicMember.stored(member, stored.protocol_name))
        if stored.members:
            group.state = GroupState.STABLE
        if stored.leader is not None and stored.leader in group.roster:
            group.roster.leader = stored.leader
        return group

    def to_stored(self, assignments: Mapping[MemberId, bytes], now_ms: int) -> StoredGroup:
        return StoredGroup(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader=self.roster.leader,
            state_timestamp_ms=now_ms if self.state_timestamp_ms is None else self.state_timestamp_ms,
            members=tuple(
                member.to_stored(self.protocol_name, assignments.get(member.member_id, b"")) for member in self.roster
            ),
        )

    def hear_from(self, member: ClassicMember, now_ms: int) -> list[Effect]:
        """The member is alive: its session starts again."""
        timeout_ms = self.config.new_member_join_timeout_ms if member.is_new else member.session_timeout_ms
        member.session_deadline_ms = now_ms + timeout_ms
        if member.timer_at_ms is not None and member.timer_at_ms <= member.session_deadline_ms:
            return []  # The timer fires earlier and will see the new deadline: a heartbeat costs no timer.
        return self._set_session_timer(member)

    def session_timer_fired(self, member_id: MemberId, now_ms: int) -> list[Effect]:
        if self.pending_members.get(member_id, now_ms + 1) <= now_ms:
            del self.pending_members[member_id]
            return self.complete_join_if_all_joined(now_ms)
        member = self.roster.get(member_id)
        if member is None or member.timer_at_ms is None or member.timer_at_ms > now_ms:
            return []
        member.timer_at_ms = None
        if member.session_deadline_ms > now_ms:
            return self._set_session_timer(member)
        if member.is_waiting_on_coordinator:
            return []  # The session starts again with the reply.
        return [*self.remove_member(member, ErrorCode.UNKNOWN_MEMBER_ID), *self.rebalance(now_ms)]

    def _set_session_timer(self, member: ClassicMember) -> list[Effect]:
        member.timer_at_ms = member.session_deadline_ms
        key = SessionTimer(group_id=self.group_id, member_id=member.member_id)
        return [SetTimer(key=key, at_ms=member.session_deadline_ms)]

    def remove_member(self, member: ClassicMember, error: ErrorCode) -> list[Effect]:
        """Drop the member and answer what it waits for; the caller goes on with ``rebalance``."""
        effects: list[Effect] = [CancelTimer(key=SessionTimer(group_id=self.group_id, member_id=member.member_id))]
        effects += self.answer_waiting(member, error)
        self.roster.remove(member)
        self.unsynced_members.discard(member.member_id)
        return effects

    def rename_member(self, member: ClassicMember, member_id: MemberId, now_ms: int) -> list[Effect]:
        """A static member goes on under the id of its next incarnation, with a session of its own."""
        cancel = CancelTimer(key=SessionTimer(group_id=self.group_id, member_id=member.member_id))
        self.unsynced_members.discard(member.member_id)
        self.roster.rename(member, member_id)
        member.timer_at_ms = None
        return [cancel, *self.hear_from(member, now_ms)]

    def answer_waiting(self, member: ClassicMember, error: ErrorCode) -> list[Effect]:
        effects: list[Effect] = []
        if member.join_token is not None:
            result = JoinGroupResult(error=error, member_id=member.member_id)
            effects.append(Reply(token=member.join_token, result=result))
        if member.sync_token is not None:
            effects.append(Reply(token=member.sync_token, result=SyncGroupResult(error=error)))
        member.join_token = member.sync_token = None
        return effects

    def rebalance(self, now_ms: int) -> list[Effect]:
        """Members came, changed or went: start a rebalance, or see whether the one under way can go on."""
        if self.state is GroupState.PREPARING_REBALANCE:
            return self.complete_join_if_all_joined(now_ms)
        effects = self._abort_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        self.unsynced_members.clear()
        is_initial = self.state is GroupState.EMPTY
        self._transition_to(GroupState.PREPARING_REBALANCE, now_ms)
        if is_initial:
            return [*effects, *self._hold_the_door_open(now_ms)]
        if self._all_joined:
            return [*effects, *self._complete_join(now_ms)]
        return [*effects, *self._set_phase_deadline(now_ms + self.roster.rebalance_timeout_ms)]

    def complete_join_if_all_joined(self, now_ms: int) -> list[Effect]:
        preparing = self.state is GroupState.PREPARING_REBALANCE
        if preparing and self._initial_delay_left_ms is None and self._all_joined:
            return self._complete_join(now_ms)
        return []

    @property
    def _all_joined(self) -> bool:
        return not self.pending_members and self.roster.joined_count == len(self.roster)

    def _hold_the_door_open(self, now_ms: int) -> list[Effect]:
        """Members of a new group tend to start together: one generation for all of them instead of one for each."""
        delay_ms = self.config.initial_rebalance_delay_ms
        if delay_ms == 0:
            return self._complete_join(now_ms)
        self._initial_delay_left_ms = max(self.roster.rebalance_timeout_ms - delay_ms, 0)
        self._joined_during_initial_delay = False
        return self._set_phase_deadline(now_ms + delay_ms)

    def note_join_during_initial_delay(self) -> None:
        self._joined_during_initial_delay = True

    def rebalance_timer_fired(self, now_ms: int) -> list[Effect]:
        if self._phase_deadline_ms is None or self._phase_deadline_ms > now_ms:
            return []
        self._phase_deadline_ms = None
        if self.state is not GroupState.PREPARING_REBALANCE:
            return self._drop_unsynced_members(now_ms)
        if self._joined_during_initial_delay and self._initial_delay_left_ms:
            delay_ms = min(self.config.initial_rebalance_delay_ms, self._initial_delay_left_ms)
            self._initial_delay_left_ms -= delay_ms
            self._joined_during_initial_delay = False
            return self._set_phase_deadline(now_ms + delay_ms)
        return self._complete_join(now_ms)

    def _drop_unsynced_members(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for member_id in sorted(self.unsynced_members):
            effects += self.remove_member(self.roster[member_id], ErrorCode.UNKNOWN_MEMBER_ID)
        return [*effects, *self.rebalance(now_ms)] if effects else []

    def _complete_join(self, now_ms: int) -> list[Effect]:
        """The join phase is over: drop who did not come, give the others a generation."""
        self._initial_delay_left_ms = None
        effects: list[Effect] = []
        for member in list(self.roster):
            # A static member may be restarting; only its session ends it (KIP-345).
            if member.join_token is None and member.group_instance_id is None:
                effects += self.remove_member(member, ErrorCode.UNKNOWN_MEMBER_ID)
        if not self.roster:
            return [*effects, *self._become_empty(now_ms)]
        if not self.roster.elect_joined_leader():
            return [*effects, *self._set_phase_deadline(now_ms + self.roster.rebalance_timeout_ms)]
        self.generation += 1
        self.protocol_name = self.roster.select_protocol()
        self._transition_to(GroupState.COMPLETING_REBALANCE, now_ms)
        self.unsynced_members = {member.member_id for member in self.roster}
        for member in self.roster:
            effects += self._announce_generation(member, now_ms)
        return [*effects, *self._set_phase_deadline(now_ms + self.roster.rebalance_timeout_ms)]

    def _become_empty(self, now_ms: int) -> list[Effect]:
        self.generation += 1
        self.protocol_name = None
        self._transition_to(GroupState.EMPTY, now_ms)
        record = group_record(self.group_id, self.to_stored({}, now_ms))
        return [*self.clear_phase_deadline(), AppendToLog(records=(record,), then=None)]

    def _announce_generation(self, member: ClassicMember, now_ms: int) -> list[Effect]:
        if member.join_token is None:
            return []
        reply = Reply(token=member.join_token, result=self.generation_for(member))
        member.join_token = None
        member.is_new = False
        return [reply, *self.hear_from(member, now_ms)]

    def generation_for(self, member: ClassicMember) -> JoinGroupResult:
        leader = self.roster.leader
        assert leader is not None
        return JoinGroupResult(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader,
            member_id=member.member_id,
            members=self.joined_members() if member.member_id == leader else (),
        )

    def joined_members(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata_for(self.protocol_name),
            )
            for member in self.roster
        )

    def finish_rebalance(self, stored: StoredGroup, now_ms: int) -> list[Effect]:
        """The assignments are in the log: hand them out."""
        self.assignment_in_flight = False
        self._transition_to(GroupState.STABLE, now_ms)
        effects: list[Effect] = []
        for assigned in stored.members:
            member = self.roster[assigned.member_id]
            member.assignment = assigned.assignment
            if member.sync_token is not None:
                effects.append(Reply(token=member.sync_token, result=self.assignment_for(member)))
                member.sync_token = None
                effects += self.hear_from(member, now_ms)
        return effects

    def assignment_for(self, member: ClassicMember) -> SyncGroupResult:
        return SyncGroupResult(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )

    def fail_rebalance(self, error: ErrorCode, now_ms: int) -> list[Effect]:
        """The assignments could not be stored: nobody may work with them, so everybody joins again."""
        return [*self._abort_syncs(error, now_ms), *self.rebalance(now_ms)]

    def _abort_syncs(self, error: ErrorCode, now_ms: int) -> list[Effect]:
        self.assignment_in_flight = False
        effects: list[Effect] = []
        for member in self.roster:
            if member.sync_token is not None:
                effects += [*self.answer_waiting(member, error), *self.hear_from(member, now_ms)]
        return effects

    def _transition_to(self, state: GroupState, now_ms: int) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self.group_id}: {self.state} to {state}"
        self.state = state
        self.state_timestamp_ms = now_ms

    def _set_phase_deadline(self, at_ms: int) -> list[Effect]:
        self._phase_deadline_ms = at_ms
        return [SetTimer(key=RebalanceTimer(group_id=self.group_id), at_ms=at_ms)]

    def clear_phase_deadline(self) -> list[Effect]:
        if self._phase_deadline_ms is None:
            return []
        self._phase_deadline_ms = None
        return [CancelTimer(key=RebalanceTimer(group_id=self.group_id))]
