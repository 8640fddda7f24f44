"""What became of the things that a shell asked for, by ticket.

A proposal is either Refused, or Accepted and then exactly one of Committed, Lost and Uncertain (unless the node
stops first). A read is Ready or Refused. A transfer is Finished or Refused.
"""

import enum

import msgspec

from quorate.kernel.ids import Offset, QuorumLeader, Term
from quorate.quorum.core.membership import ChangeRefusal


class Refusal(enum.StrEnum):
    NOT_LEADER = "not the leader"
    # The leader's image may lack what its predecessor committed, until its own first entry is applied.
    LEADER_NOT_READY = "the leader has not applied its first entry"
    STALE_TERM = "decided in another term"
    TRANSFERRING = "leadership is being handed over"
    TOO_MANY_UNCOMMITTED = "too many uncommitted entries"
    CHANGE_IN_PROGRESS = "a membership change is not committed yet"
    LEARNER_NOT_CAUGHT_UP = "the learner is too far behind"
    NOT_A_VOTER = "only another voter can become the leader"


class Refused(msgspec.Struct, frozen=True):
    """Nothing was done and nothing will be: safe to try again, at the leader where one is known."""

    ticket: int
    reason: Refusal | ChangeRefusal
    leader: QuorumLeader | None


class ProposalAccepted(msgspec.Struct, frozen=True):
    """In the leader's log; others may still overrule it."""

    ticket: int
    offset: Offset
    term: Term


class ProposalCommitted(msgspec.Struct, frozen=True):
    """Comes in the same Ready as the committed entry."""

    ticket: int
    offset: Offset


class ProposalLost(msgspec.Struct, frozen=True):
    """A later leader put something else in its place: it will never be committed."""

    ticket: int


class ProposalUncertain(msgspec.Struct, frozen=True):
    """A snapshot took the place of the log around it: only the applied state can tell whether it was committed."""

    ticket: int


class ReadReady(msgspec.Struct, frozen=True):
    """What is applied up to here, which holds after this Ready's committed entries, is fresh enough for the read."""

    ticket: int
    offset: Offset


class TransferFinished(msgspec.Struct, frozen=True):
    ticket: int
    stepped_down: bool  # False: given up, this node still leads.


Outcome = (
    Refused | ProposalAccepted | ProposalCommitted | ProposalLost | ProposalUncertain | ReadReady | TransferFinished
)
