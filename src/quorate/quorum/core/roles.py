"""What roles share: the changes of role that one can ask for, and whom a node votes for.

Roles return changes instead of making each other, so that none needs to know the others.
"""

import enum

import msgspec

from quorate.kernel.ids import NodeId, Term
from quorate.quorum.core.messages import VoteRequest, VoteResponse
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
