"""Which partition of ``__consumer_offsets`` holds a group."""

from quorate.kernel.ids import GroupId, PartitionIndex
from quorate.kernel.java_hash import java_placement


def partition_for_group(group_id: GroupId, partition_count: int) -> PartitionIndex:
    return PartitionIndex(java_placement(group_id, partition_count))
