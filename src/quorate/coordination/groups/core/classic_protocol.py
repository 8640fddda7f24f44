"""The classic protocol: the states of a group, and what its members say they speak.

The states and the moves between them::

    Empty ──▶ PreparingRebalance ──▶ CompletingRebalance ──▶ Stable
                │    ▲    ▲                 │                  │
      Empty ◀───┘    │    └─────────────────┘                  │
                     └─────────────────────────────────────────┘

    ===================  ============================================  =====================
    in                   on                                            becomes
    ===================  ============================================  =====================
    Empty                a member joins                                PreparingRebalance
    PreparingRebalance   all have joined, or the time for it is over   CompletingRebalance
    PreparingRebalance   the time is over, and nobody has joined       Empty
    CompletingRebalance  the leader's assignment is in the log         Stable
    CompletingRebalance  the append failed; somebody joins anew or     PreparingRebalance
                         leaves, or has not asked for its assignment
    Stable               somebody joins anew, leaves or is not heard   PreparingRebalance
    ===================  ============================================  =====================
"""

from enum import StrEnum

import msgspec


class GroupState(StrEnum):
    """Values are the names that DescribeGroups and ListGroups put on the wire."""

    EMPTY = "Empty"  # No members; offsets may remain.
    PREPARING_REBALANCE = "PreparingRebalance"  # Waits for members to join.
    COMPLETING_REBALANCE = "CompletingRebalance"  # Waits for the leader's assignment.
    STABLE = "Stable"
    DEAD = "Dead"  # Only ever an answer: a group that is not there.


VALID_PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(),
}


class GroupProtocol(msgspec.Struct, frozen=True, kw_only=True):
    """Its name, and the member's metadata for it (for consumers: the subscription)."""

    name: str
    metadata: bytes
