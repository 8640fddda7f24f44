"""One node of the metadata quorum: events go in, a Ready says what to persist, send and apply.

``step`` only changes memory. ``ready`` collects what the steps since the last one caused; its fields are in the order
in which they must be carried out. ``advance`` says that they were. One Ready is out at a time; steps may go on
meanwhile.
"""

from collections.abc import Sequence
from typing import assert_never

from quorate.kernel.ids import NO_DIRECTORY, DirectoryId, NodeId, Offset, QuorumLeader
from quorate.quorum.core.config import RaftConfig
from quorate.quorum.core.entries import Entry, HardState, InvariantBroken, LogPosition, Snapshot, SnapshotMeta
from quorate.quorum.core.events import (
    Compact,
    MessageReceived,
    PeerDied,
    PeerReachable,
    Propose,
    ProposeMembership,
    RaftEvent,
    ReadIndex,
    Tick,
    TransferLeadership,
)
from quorate.quorum.core.leader import Leader
from quorate.quorum.core.log import RaftLog
from quorate.quorum.core.membership import Membership
from quorate.quorum.core.messages import AppendRequest, FromLeader, Message, TermNotice, VoteRequest, VoteResponse
from quorate.quorum.core.outcomes import Refusal
from quorate.quorum.core.ready import QuorumState, Ready, Role
from quorate.quorum.core.roles import (
    Campaign,
    CampaignPhase,
    Candidate,
    Follow,
    Follower,
    Lead,
    Transition,
    answer_vote_request,
    send_vote_response,
)
from quorate.quorum.core.sanity import TermAllowance, objection
from quorate.quorum.core.state import Jitter, RaftState


class RaftNode:
    """One role at a time over one state. A role returns the change that it asks for (``roles``), the node makes it.

    ======================  ===================================================  ======================
    from                    when                                                 to
    ======================  ===================================================  ======================
    Follower                its election is due: no leader was heard, or died    Candidate, pre-vote
    Follower                its leader hands over (TimeoutNow)                   Candidate, vote
    Candidate, pre-vote     a majority would vote for it                         Candidate, vote
    Candidate, vote         a majority votes for it                              Leader
    Candidate, either       its election is due again                            Candidate, pre-vote
    Candidate, either       a majority refuses, or a leader of its term speaks   Follower
    Leader                  a majority is silent, or its removal is committed    Follower
    any                     a message of a later term that it has to believe     Follower of that term
    ======================  ===================================================  ======================

    Asking for votes is what begins a term, pre-votes begin none. One that is no voter, or recovers, never campaigns.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        config: RaftConfig,
        jitter: Jitter,
        now_ms: int,
        bootstrap: Membership,
        hard_state: HardState | None = None,
        snapshot: Snapshot | None = None,
        entries: Sequence[Entry] = (),
        lost_log: LogPosition | None = None,
    ) -> None:
        """Start from what the disk holds; the bootstrap membership holds until snapshot or log name another one.

        Entries that the snapshot stands for may be among those given. A node that joins later bootstraps with an
        empty membership, and waits for a leader to talk to it. Where damage took a part of the log, ``lost_log`` says
        how far it went: the node recovers, until a Ready says that this is over.
        """
        log = RaftLog(snapshot, entries, bootstrap)
        self._state = RaftState(
            node_id=node_id,
            config=config,
            jitter=jitter,
            hard_state=hard_state or HardState(),
            log=log,
            now_ms=now_ms,
            lost_log=lost_log,
        )
        self._told_recovered = lost_log is None
        self._state.end_recovery_when_complete()
        self._role: Follower | Candidate | Leader = Follower(self._state, self._first_deadline())
        self._term_allowance = TermAllowance(self._state.term, now_ms)
        self._saved_hard_state = self._state.hard_state
        self._told_quorum_state: QuorumState | None = None
        self._reachable = {node_id}  # Those that could answer a pre-vote now.
        self._untimely_pre_vote: VoteRequest | None = None  # The last one that met a live leader.
        self._handed_out_end_offset = log.high_watermark  # Of committed entries.
        self._out: Ready | None = None

    @property
    def quorum_state(self) -> QuorumState:
        role = self._role
        return QuorumState(
            role=self._role_name(),
            term=self._state.term,
            leader=self._state.quorum_leader,
            can_decide=isinstance(role, Leader) and role.can_decide,
        )

    @property
    def leader(self) -> QuorumLeader | None:
        return self._state.quorum_leader

    @property
    def membership(self) -> Membership:
        """The latest in the log, committed or not."""
        return self._state.log.membership

    def directory_of(self, node_id: NodeId) -> DirectoryId:
        """The data folder that a node must have to be talked to; ``NO_DIRECTORY`` where any will do.

        The latest membership says so. A leader goes on with one that it removes until that is committed, as if it had
        what it has acknowledged.
        """
        log = self._state.log
        member = log.membership.member(node_id)
        if member is None and isinstance(self._role, Leader):
            member = log.committed_membership.member(node_id)
        return NO_DIRECTORY if member is None else member.directory_id

    @property
    def lost_log(self) -> LogPosition | None:
        """How far the log has to go again before this node takes part in elections; None: it does."""
        return self._state.lost_log

    @property
    def log_end_offset(self) -> Offset:
        return self._state.log.log_end_offset

    @property
    def high_watermark(self) -> Offset:
        return self._state.log.high_watermark

    def saved_entries(self) -> list[Entry]:
        """Those behind the snapshot that have been handed out to be made durable."""
        log = self._state.log
        return log.read(log.start_offset if log.snapshot is None else log.snapshot.meta.end_offset, log.unsaved_from)

    def match_end_offsets(self) -> dict[NodeId, Offset]:
        """How far each other member has the log, as far as this node, if it leads, knows."""
        return self._role.match_end_offsets() if isinstance(self._role, Leader) else {}

    @property
    def next_deadline_ms(self) -> int | None:
        """When to tick; None: nothing happens unless something arrives."""
        return self._role.deadline_ms

    def snapshot_meta(self, end_offset: Offset) -> SnapshotMeta | None:
        """What to store beside a snapshot of the state machine that has applied all before end_offset.

        None: the log no longer has the entry before it, since a later snapshot has taken its place.
        """
        return self._state.log.snapshot_meta(end_offset)

    def objection_to(self, message: Message, now_ms: int) -> str | None:
        """Why no sound node can have sent the message. One that is objected to must not be given to ``step``."""
        state = self._state
        leader = self._role if isinstance(self._role, Leader) else None
        reason = objection(message, state, leads=leader is not None, read_round=leader.read_round if leader else 0)
        if reason is None and not self._term_allowance.admits(message.term, state.term, now_ms):
            reason = f"term {message.term} is too far from this node's term {state.term}"
        return reason

    def step(self, event: RaftEvent) -> None:
        self._state.now_ms = max(self._state.now_ms, event.now_ms)
        match event:
            case MessageReceived():
                self._receive(event.message)
            case Tick():
                deadline_ms = self._role.deadline_ms
                if deadline_ms is not None and self._state.now_ms >= deadline_ms:
                    self._change_role(self._role.wake())
            case Propose() | ProposeMembership() | ReadIndex() | TransferLeadership():
                self._ask_leader(event)
            case PeerDied():
                self._reachable.discard(event.peer)
                if not isinstance(self._role, Candidate):
                    self._role.lose_connection(event.peer)
                self._answer_untimely_pre_vote()
            case PeerReachable():
                self._reach(event.peer)
            case Compact():
                self._compact(event.snapshot)
            case _:
                assert_never(event)

    def ready(self) -> Ready | None:
        if self._out is not None:
            raise InvariantBroken("a Ready is out that was not advanced")
        if isinstance(self._role, Leader):
            self._role.flush()
        if not self._has_news():
            return None
        self._out = self._collect()
        return self._out

    def advance(self, ready: Ready) -> None:
        """All of the Ready was carried out: durable, sent and applied."""
        if ready is not self._out:
            raise InvariantBroken("this Ready is not the one that is out")
        self._out = None
        state = self._state
        # Truncations since then have moved this back, so that it never counts what the next Ready will rewrite.
        state.durable_end_offset = state.log.unsaved_from
        if ready.snapshot is not None:
            state.applied_end_offset = ready.snapshot.meta.end_offset
        if ready.committed:
            state.applied_end_offset = Offset(ready.committed[-1].offset + 1)
        if isinstance(self._role, Leader):
            self._change_role(self._role.advance_high_watermark())

    def _has_news(self) -> bool:
        state = self._state
        log = state.log
        return bool(
            state.outbox
            or state.finished
            or state.snapshot_to_install is not None
            or log.unsaved_from < log.log_end_offset
            or self._handed_out_end_offset < log.high_watermark
            or (not self._told_recovered and not state.is_recovering)
            or state.hard_state != self._saved_hard_state
            or self.quorum_state != self._told_quorum_state
        )

    def _collect(self) -> Ready:
        state = self._state
        log = state.log
        hard_state = state.hard_state if state.hard_state != self._saved_hard_state else None
        snapshot, state.snapshot_to_install = state.snapshot_to_install, None
        if snapshot is not None:
            self._handed_out_end_offset = snapshot.meta.end_offset
        may_overtake_disk = hard_state is None and snapshot is None
        quorum_state = self.quorum_state
        is_recovered = not self._told_recovered and not state.is_recovering
        may_overtake_disk = may_overtake_disk and not is_recovered
        ready = Ready(
            early_messages=[m for m in state.outbox if may_overtake_disk and isinstance(m, AppendRequest)],
            hard_state=hard_state,
            snapshot=snapshot,
            entries=log.read(log.unsaved_from, log.log_end_offset),
            is_recovered=is_recovered,
            messages=[m for m in state.outbox if not (may_overtake_disk and isinstance(m, AppendRequest))],
            committed=log.read(self._handed_out_end_offset, log.high_watermark),
            finished=list(state.finished),
            quorum_state=quorum_state if quorum_state != self._told_quorum_state else None,
        )
        self._saved_hard_state = state.hard_state
        self._told_quorum_state = quorum_state
        self._told_recovered = self._told_recovered or is_recovered
        self._handed_out_end_offset = log.high_watermark
        log.unsaved_from = log.log_end_offset
        state.outbox.clear()
        state.finished.clear()
        return ready

    def _receive(self, message: Message) -> None:
        state = self._state
        if message.receiver != state.node_id:
            return  # An address that changed hands.
        if message.term > state.term:
            if not self._meet_newer_term(message):
                return
        elif message.term < state.term:
            self._answer_past_term(message)
            return
        if isinstance(message, VoteRequest):
            self._answer_vote_request(message)
            return
        if isinstance(message, FromLeader) and isinstance(self._role, Candidate):
            self._change_role(Follow(state.term, message.sender))
        self._change_role(self._role.receive(message))

    def _meet_newer_term(self, message: Message) -> bool:
        """Move to the message's term where it stands for one; return whether the message is to be looked at."""
        if isinstance(message, VoteRequest):
            if self._state.has_live_leader and not message.is_transfer:
                self._untimely_pre_vote = message if message.is_pre_vote else None
                return False
            if message.is_pre_vote:
                return True  # Nobody is in that term yet.
        if isinstance(message, VoteResponse) and message.is_pre_vote and message.granted:
            return True
        self._change_role(Follow(message.term, message.sender if isinstance(message, FromLeader) else None))
        return True

    def _answer_untimely_pre_vote(self) -> None:
        """Who asked for a pre-vote may have known of the leader's end before this node did."""
        request = self._untimely_pre_vote
        if request is not None and not self._state.has_live_leader:
            self._untimely_pre_vote = None
            if request.term == self._state.term + 1:
                self._receive(request)

    def _reach(self, peer: NodeId) -> None:
        """Once a majority can answer, a node that has heard nobody since it started need not wait to ask."""
        self._reachable.add(peer)
        if isinstance(self._role, Follower) and self._state.log.membership.is_quorum(self._reachable):
            self._role.reach_majority()

    def _answer_past_term(self, message: Message) -> None:
        state = self._state
        if isinstance(message, FromLeader):
            # Else a node whose term got ahead could never be reached by a leader, which never hears from it.
            state.outbox.append(TermNotice(term=state.term, sender=state.node_id, receiver=message.sender))
        elif isinstance(message, VoteRequest) and message.is_pre_vote:
            send_vote_response(state, message, granted=False)

    def _answer_vote_request(self, request: VoteRequest) -> None:
        role = self._role
        if request.is_pre_vote and isinstance(role, Candidate) and role.phase is CampaignPhase.PRE_VOTE:
            role.answer_rival(request)
        elif answer_vote_request(self._state, request) and not request.is_pre_vote and isinstance(role, Follower):
            role.await_leader()

    def _ask_leader(self, event: Propose | ProposeMembership | ReadIndex | TransferLeadership) -> None:
        role = self._role
        if not isinstance(role, Leader):
            self._state.refuse(event.ticket, Refusal.NOT_LEADER)
            return
        match event:
            case Propose():
                role.propose(event)
            case ProposeMembership():
                role.propose_membership(event)
            case ReadIndex():
                role.read_index(event.ticket)
            case TransferLeadership():
                role.transfer_leadership(event)

    def _compact(self, snapshot: Snapshot) -> None:
        state = self._state
        end_offset = snapshot.meta.end_offset
        if end_offset > state.applied_end_offset:
            raise InvariantBroken(f"a snapshot at {end_offset}, but applied is only {state.applied_end_offset}")
        if state.log.snapshot is None or end_offset > state.log.snapshot.meta.end_offset:
            state.log.compact(snapshot, state.config.entries_kept_behind_snapshot)

    def _change_role(self, transition: Transition) -> None:
        while transition is not None:
            if isinstance(self._role, Leader):
                self._role.resign()
            transition = self._enter(transition)

    def _enter(self, transition: Follow | Campaign | Lead) -> Transition:
        state = self._state
        match transition:
            case Follow():
                state.move_to_term(transition.term)
                state.leader = transition.leader
                # A newer term alone is no reason to wait longer: its candidate may be one that cannot win.
                kept = self._role.election_deadline_ms if isinstance(self._role, Follower) else None
                self._role = Follower(state, state.election_deadline() if kept is None else kept)
            case Campaign():
                self._role = Candidate(state, transition)
                return self._role.begin()
            case Lead():
                self._role = Leader(state)
            case _:
                assert_never(transition)
        return None

    def _first_deadline(self) -> int:
        """A node that starts has heard nobody, and may ask sooner; where it is the only voter, at once."""
        state = self._state
        if state.log.membership.voters == {state.node_id}:
            return state.now_ms
        config = state.config
        return state.time_between(config.election_timeout_min_ms // 2, config.election_timeout_max_ms // 2)

    def _role_name(self) -> Role:
        if isinstance(self._role, Leader):
            return Role.LEADER
        if isinstance(self._role, Candidate):
            return Role.CANDIDATE if self._role.phase is CampaignPhase.VOTE else Role.PRE_CANDIDATE
        return Role.FOLLOWER if self._state.is_voter else Role.LEARNER
