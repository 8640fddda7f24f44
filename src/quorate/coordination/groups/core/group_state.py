"""The states of a classic group and the moves between them."""

from enum import StrEnum


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
