"""How a member gets from the partitions it has to those it should have: revoke first, then be given.

A partition is only given to a member when nobody else holds it. Who must revoke keeps its epoch until it has; who has
nothing left to revoke moves to the epoch of the target at once, and may wait there for what others still hold.
"""

from collections.abc import Callable

from quorate.coordination.groups.core.consumer.partitions import NO_PARTITIONS, AssignedPartition, Partitions
from quorate.coordination.groups.core.consumer.records import CurrentAssignment, MemberState

_MAY_HAVE_TO_REVOKE = (MemberState.UNREVOKED_PARTITIONS, MemberState.UNKNOWN)


def reconcile(
    current: CurrentAssignment,
    *,
    target_epoch: int,
    target: Partitions,
    reported: Partitions | None,
    is_free: Callable[[AssignedPartition], bool],
) -> CurrentAssignment:
    """The member's next assignment. ``reported`` is what it says it owns, None where its heartbeat does not say."""
    if current.state is MemberState.STABLE and current.member_epoch == target_epoch:
        return current
    if current.state in _MAY_HAVE_TO_REVOKE and _still_owns(reported, current.pending_revocation):
        return current
    kept = current.assigned & target
    to_revoke = current.assigned - target
    if to_revoke and _still_owns(reported, to_revoke):
        return CurrentAssignment(
            member_epoch=current.member_epoch,
            previous_member_epoch=current.previous_member_epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=to_revoke,
        )
    missing = target - kept
    free = frozenset(partition for partition in missing if is_free(partition))
    return _moved_to_epoch(
        current,
        target_epoch,
        state=MemberState.STABLE if free == missing else MemberState.UNRELEASED_PARTITIONS,
        assigned=kept | free,
    )


def _moved_to_epoch(
    current: CurrentAssignment, member_epoch: int, *, state: MemberState, assigned: Partitions
) -> CurrentAssignment:
    moved = current.member_epoch != member_epoch
    return CurrentAssignment(
        member_epoch=member_epoch,
        previous_member_epoch=current.member_epoch if moved else current.previous_member_epoch,
        state=state,
        assigned=assigned,
        pending_revocation=NO_PARTITIONS,
    )


def _still_owns(reported: Partitions | None, partitions: Partitions) -> bool:
    """A heartbeat that does not say what the member owns gives nothing up."""
    return reported is None or not reported.isdisjoint(partitions)
