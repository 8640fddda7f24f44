"""Who should have which partitions, and how a member gets there.

The range assignor gives each topic's partitions in contiguous runs, in the order of the members: those that subscribe
to the same topics get the same indexes of each, so that topics can be joined by key.

The uniform assignor gives members as many partitions as one another, and lets them keep those they had. Balance goes
as far as subscriptions allow: what is returned has the smallest possible sum of squared loads. A load moves along a
chain of members where no single move helps: from one to the next that may read a partition of it.

A member gives partitions up first, and is given others then, each only when nobody else holds it. Who must revoke keeps
its epoch until it has; who has nothing left to revoke moves to the epoch of the target at once, and may wait there for
what others still hold.
"""

from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from quorate.coordination.groups.core.consumer.records import CurrentAssignment, MemberState
from quorate.coordination.groups.core.consumer.topics import NO_PARTITIONS, AssignedPartition, Partitions
from quorate.kernel.ids import MemberId, PartitionIndex, TopicId

_MAY_HAVE_TO_REVOKE = (MemberState.UNREVOKED_PARTITIONS, MemberState.UNKNOWN)


class AssignmentProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What an assignor is given: who subscribes to what, and who had what before."""

    #: The topics that exist, for each member. Members are in the order in which assignors consider them.
    subscriptions: Mapping[MemberId, frozenset[TopicId]]
    partition_counts: Mapping[TopicId, int]
    previous: Mapping[MemberId, Partitions] = {}

    def subscribers(self) -> dict[TopicId, list[MemberId]]:
        """Who subscribes to each topic; topics by id, members in their order."""
        found: dict[TopicId, list[MemberId]] = {}
        for member_id, topics in self.subscriptions.items():
            for topic_id in topics:
                found.setdefault(topic_id, []).append(member_id)
        return dict(sorted(found.items()))


def assign_ranges(problem: AssignmentProblem) -> Mapping[MemberId, Partitions]:
    assigned: dict[MemberId, set[AssignedPartition]] = {member_id: set() for member_id in problem.subscriptions}
    for topic_id, subscribers in problem.subscribers().items():
        share, extra = divmod(problem.partition_counts[topic_id], len(subscribers))
        start = 0
        for position, member_id in enumerate(subscribers):
            end = start + share + (position < extra)
            assigned[member_id].update(AssignedPartition(topic_id, PartitionIndex(i)) for i in range(start, end))
            start = end
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


def assign_uniformly(problem: AssignmentProblem) -> Mapping[MemberId, Partitions]:
    balancing = _Balancing(problem)
    balancing.keep_previous()
    balancing.hand_out_the_rest()
    balancing.even_out()
    return balancing.result()


class _Balancing:
    def __init__(self, problem: AssignmentProblem) -> None:
        self._problem = problem
        self._subscribers = problem.subscribers()
        # The indexes that each member has of each topic; dictionaries keep the order in which they came.
        self._owned: dict[MemberId, dict[TopicId, dict[PartitionIndex, None]]] = {
            member_id: {} for member_id in problem.subscriptions
        }
        self._loads = dict.fromkeys(problem.subscriptions, 0)
        self._taken: set[AssignedPartition] = set()

    def result(self) -> dict[MemberId, Partitions]:
        return {
            member_id: frozenset(
                AssignedPartition(topic_id, index) for topic_id, indexes in topics.items() for index in indexes
            )
            for member_id, topics in self._owned.items()
        }

    def keep_previous(self) -> None:
        for member_id, topics in self._problem.subscriptions.items():
            for partition in sorted(self._problem.previous.get(member_id, ())):
                exists = partition.partition < self._problem.partition_counts.get(partition.topic_id, 0)
                if exists and partition.topic_id in topics and partition not in self._taken:
                    self._give(member_id, partition)

    def hand_out_the_rest(self) -> None:
        """To the least loaded first; topics that few may read come before those that have more room to choose."""
        for topic_id, subscribers in sorted(self._subscribers.items(), key=lambda item: (len(item[1]), item[0])):
            rest = [
                partition
                for index in range(self._problem.partition_counts[topic_id])
                if (partition := AssignedPartition(topic_id, PartitionIndex(index))) not in self._taken
            ]
            for partition in rest:
                self._give(min(subscribers, key=self._loads.__getitem__), partition)

    def even_out(self) -> None:
        settled: set[MemberId] = set()
        while len(settled) < len(self._loads):
            heaviest = max((each for each in self._loads if each not in settled), key=self._loads.__getitem__)
            came_by, reached = self._reachable(heaviest, settled)
            lightest = min(reached, key=self._loads.__getitem__)
            if self._loads[lightest] + 1 < self._loads[heaviest]:
                self._shift(heaviest, lightest, came_by)
            else:
                # Nobody whom the heaviest can reach is much lighter, so none of them can help anybody else either.
                settled.update(reached)

    def _reachable(
        self, start: MemberId, settled: set[MemberId]
    ) -> tuple[dict[MemberId, tuple[MemberId, TopicId]], list[MemberId]]:
        """The members to whom ``start`` can hand load, through others too; who hands it on, and of which topic."""
        came_by: dict[MemberId, tuple[MemberId, TopicId]] = {}
        seen_topics: set[TopicId] = set()
        reached, queue = [start], deque([start])
        while queue:
            member_id = queue.popleft()
            for topic_id, indexes in self._owned[member_id].items():
                if not indexes or topic_id in seen_topics:
                    continue
                seen_topics.add(topic_id)
                for other in self._subscribers[topic_id]:
                    if other != start and other not in came_by and other not in settled:
                        came_by[other] = (member_id, topic_id)
                        reached.append(other)
                        queue.append(other)
        return came_by, reached

    def _shift(self, start: MemberId, end: MemberId, came_by: Mapping[MemberId, tuple[MemberId, TopicId]]) -> None:
        """One partition moves over each step of the chain, from its end backwards."""
        receiver = end
        while receiver != start:
            giver, topic_id = came_by[receiver]
            # What came last goes first: a partition that the member had before is given up only if no other is left.
            index, _ = self._owned[giver][topic_id].popitem()
            self._loads[giver] -= 1
            self._give(receiver, AssignedPartition(topic_id, index))
            receiver = giver

    def _give(self, member_id: MemberId, partition: AssignedPartition) -> None:
        self._owned[member_id].setdefault(partition.topic_id, {})[partition.partition] = None
        self._loads[member_id] += 1
        self._taken.add(partition)


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


#: By the names that members ask for. The first is taken where nobody does.
ASSIGNORS = {"uniform": assign_uniformly, "range": assign_ranges}
