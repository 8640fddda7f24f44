"""The changes of role that a role can ask for, whom a node votes for, and the roles that do not lead.

Roles return changes instead of making each other, so that none needs to know the others. Learners and nodes outside the
membership are followers that never campaign.
"""

import enum

import msgspec

from quorate.kernel.ids import NodeId, Offset, Term
from quorate.quorum.core.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    FromLeader,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from quorate.quorum.core.state import RaftState


class CampaignPhase(enum.Enum):
    PRE_VOTE = "pre-vote"  # Asks whether an election could be won, and disturbs nobody (thesis, section 9.6).
    VOTE = "vote"


class Follow(msgspec.Struct, frozen=True):
    term: Term
    leader: NodeId | None


class Campaign(msgspec.Struct, frozen=True):
    phase: CampaignPhase
    is_transfer: bool = False


class Lead(msgspec.Struct, frozen=True):
    """The election is won."""


Transition = Follow | Campaign | Lead | None  # None: the role stays.


class Follower:
    """Takes entries over from the leader, and campaigns when there seems to be none."""

    def __init__(self, state: RaftState, election_deadline_ms: int) -> None:
        self._state = state
        self.election_deadline_ms = election_deadline_ms
        self._has_somebody = False  # A leader was heard, or a candidate got this node's vote.

    @property
    def deadline_ms(self) -> int | None:
        """When to campaign.

        A node that is leaving campaigns until its removal is committed: with its longer log it may be the only one
        that can win (thesis, section 4.2.2). One whose log was damaged waits to be given it again.
        """
        state = self._state
        may_campaign = state.log.may_be_voter(state.node_id) and not state.is_recovering
        return self.election_deadline_ms if may_campaign else None

    def wake(self) -> Transition:
        return Campaign(CampaignPhase.PRE_VOTE)

    def receive(self, message: Message) -> Transition:
        match message:
            case AppendRequest():
                self.hear_leader(message.sender)
                self._append(message)
            case Heartbeat():
                self.hear_leader(message.sender)
                self._take_heartbeat(message)
            case InstallSnapshot():
                self.hear_leader(message.sender)
                self._install(message)
            case TimeoutNow() if self._state.is_voter and not self._state.is_recovering:
                return Campaign(CampaignPhase.VOTE, is_transfer=True)
            case _:
                pass  # Answers to what this node asked in a role it no longer has.
        return None

    def hear_leader(self, leader: NodeId) -> None:
        state = self._state
        state.leader = leader
        state.lease_end_ms = state.now_ms + state.config.election_timeout_min_ms
        self.await_leader()

    def await_leader(self) -> None:
        """Give the leader, or the candidate that got this node's vote, a whole election timeout."""
        self._has_somebody = True
        self.election_deadline_ms = self._state.election_deadline()

    def lose_connection(self, peer: NodeId) -> None:
        state = self._state
        if peer != state.leader:
            return
        state.leader = None
        self._campaign_soon()

    def reach_majority(self) -> None:
        if not self._has_somebody:
            self._campaign_soon()

    def _campaign_soon(self) -> None:
        soon_ms = self._state.time_between(0, self._state.config.connection_jitter_ms)
        self.election_deadline_ms = min(self.election_deadline_ms, soon_ms)

    def _append(self, request: AppendRequest) -> None:
        log = self._state.log
        if request.base_offset < log.high_watermark:
            # Late or repeated. What is committed here is the leader's too, and need not be compared.
            self._accept(request, log.high_watermark)
            return
        if log.term_before(request.base_offset) != request.previous_term:
            self._reject(request)
            return
        self._state.merge(request.entries)
        match_end_offset = Offset(request.base_offset + len(request.entries))
        self._commit(min(request.high_watermark, match_end_offset))
        self._accept(request, match_end_offset)

    def _reject(self, request: AppendRequest) -> None:
        log = self._state.log
        end_offset = log.end_of_terms_up_to(request.previous_term, request.base_offset)
        term = log.term_before(end_offset)
        assert term is not None, "the log holds all that is not committed"
        self._state.outbox.append(
            AppendRejected(
                term=self._state.term,
                sender=self._state.node_id,
                receiver=request.sender,
                base_offset=request.base_offset,
                diverging_end_offset=end_offset,
                diverging_term=term,
                is_recovering=self._state.is_recovering,
            )
        )

    def _take_heartbeat(self, heartbeat: Heartbeat) -> None:
        state = self._state
        if not state.is_recovering:  # Else the leader may still think of the log that was lost.
            self._commit(heartbeat.high_watermark)
        state.outbox.append(
            HeartbeatResponse(
                term=state.term,
                sender=state.node_id,
                receiver=heartbeat.sender,
                read_round=heartbeat.read_round,
                recovered_end_offset=state.log.log_end_offset if state.is_recovering else None,
            )
        )

    def _install(self, message: InstallSnapshot) -> None:
        log = self._state.log
        meta = message.snapshot.meta
        if meta.end_offset > log.high_watermark:
            if log.term_before(meta.end_offset) == meta.last_term:
                self._commit(meta.end_offset)  # All that the snapshot stands for is here already.
            else:
                self._state.install(message.snapshot)
        self._accept(message, log.high_watermark)

    def _commit(self, end_offset: Offset) -> None:
        if end_offset > self._state.log.high_watermark:
            self._state.commit(end_offset)

    def _accept(self, message: FromLeader, match_end_offset: Offset) -> None:
        self._state.outbox.append(
            AppendAccepted(
                term=self._state.term,
                sender=self._state.node_id,
                receiver=message.sender,
                match_end_offset=match_end_offset,
            )
        )


class Candidate:
    """Campaigns, first for pre-votes and then for votes."""

    def __init__(self, state: RaftState, campaign: Campaign) -> None:
        self._state = state
        self.phase = campaign.phase
        self._is_transfer = campaign.is_transfer
        self._granted: set[NodeId] = set()
        self._refused: set[NodeId] = set()
        state.leader = None
        if self.phase is CampaignPhase.VOTE:
            state.move_to_term(Term(state.term + 1))
            state.vote_for(state.node_id)
        self.deadline_ms = self._deadline()

    def begin(self) -> Transition:
        for voter in sorted(self._state.log.membership.voters - {self._state.node_id}):
            self._request_vote(voter)
        self._granted.add(self._state.node_id)
        return self._result()

    def wake(self) -> Transition:
        return Campaign(CampaignPhase.PRE_VOTE)

    def receive(self, message: Message) -> Transition:
        if not isinstance(message, VoteResponse) or message.is_pre_vote != self._is_pre_vote:
            return None
        if message.granted and message.term == self._campaign_term:
            self._granted.add(message.sender)
        elif not message.granted:
            self._refused.add(message.sender)
        return self._result()

    def answer_rival(self, request: VoteRequest) -> None:
        """Two nodes that ask for pre-votes at the same time must not both go on, or they split the votes.

        The one whose log, or else whose node id, is smaller gives way. It may not have heard the other's request (its
        leader still seemed alive then), so it is asked again.
        """
        log = self._state.log
        rival = (request.last_term, request.log_end_offset, request.sender)
        if rival > (log.last_term, log.log_end_offset, self._state.node_id):
            answer_vote_request(self._state, request)
        else:
            send_vote_response(self._state, request, granted=False)
            self._request_vote(request.sender)

    @property
    def _is_pre_vote(self) -> bool:
        return self.phase is CampaignPhase.PRE_VOTE

    @property
    def _campaign_term(self) -> Term:
        return Term(self._state.term + 1) if self._is_pre_vote else self._state.term

    def _deadline(self) -> int:
        config = self._state.config
        if self._is_pre_vote:
            return self._state.time_between(config.pre_vote_timeout_min_ms, config.pre_vote_timeout_max_ms)
        return self._state.election_deadline()

    def _request_vote(self, voter: NodeId) -> None:
        self._state.outbox.append(
            VoteRequest(
                term=self._campaign_term,
                sender=self._state.node_id,
                receiver=voter,
                is_pre_vote=self._is_pre_vote,
                is_transfer=self._is_transfer,
                log_end_offset=self._state.log.log_end_offset,
                last_term=self._state.log.last_term,
            )
        )

    def _result(self) -> Transition:
        membership = self._state.log.membership
        if membership.is_quorum(self._granted):
            return Campaign(CampaignPhase.VOTE) if self._is_pre_vote else Lead()
        if membership.is_quorum(self._refused):
            return Follow(self._state.term, None)
        return None


def answer_vote_request(state: RaftState, request: VoteRequest) -> bool:
    """Answer a request of this term (a pre-vote: of any term that is not past); return whether it got the vote."""
    granted = _may_vote_for(state, request) and state.log.is_at_least(request.log_end_offset, request.last_term)
    if granted and not request.is_pre_vote:
        state.vote_for(request.sender)
    send_vote_response(state, request, granted=granted)
    return granted


def send_vote_response(state: RaftState, request: VoteRequest, *, granted: bool) -> None:
    state.outbox.append(
        VoteResponse(
            term=request.term if granted else state.term,
            sender=state.node_id,
            receiver=request.sender,
            is_pre_vote=request.is_pre_vote,
            granted=granted,
        )
    )


def _may_vote_for(state: RaftState, request: VoteRequest) -> bool:
    if state.is_recovering:
        return False  # Its log does not show what others count on it to have.
    if request.is_pre_vote:
        return request.term > state.term
    return state.voted_for == request.sender or (state.voted_for is None and state.leader is None)
