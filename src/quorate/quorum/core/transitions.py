"""The changes of role that a role can ask for.

Roles return these instead of making each other, so that none needs to know the others.
"""

import enum

import msgspec

from quorate.kernel.ids import NodeId, Term


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
