"""The range assignor: each topic's partitions in contiguous runs, in the order of the members.

Members that subscribe to the same topics get the same indexes of each, so that topics can be joined by key.
"""

from collections.abc import Mapping

from quorate.coordination.groups.core.consumer.assignment_problem import AssignmentProblem
from quorate.coordination.groups.core.consumer.partitions import AssignedPartition, Partitions
from quorate.kernel.ids import MemberId, PartitionIndex


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
