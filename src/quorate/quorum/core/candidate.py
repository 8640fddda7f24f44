"""A node that campaigns, first for pre-votes and then for votes."""

from quorate.kernel.ids import NodeId, Term
from quorate.quorum.core.messages import Message, VoteRequest, VoteResponse
from quorate.quorum.core.roles import (
    Campaign,
    CampaignPhase,
    Follow,
    Lead,
    Transition,
    answer_vote_request,
    send_vote_response,
)
from quorate.quorum.core.state import RaftState


class Candidate:
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
