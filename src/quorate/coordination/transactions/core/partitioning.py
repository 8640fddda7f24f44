"""Which partition of ``__transaction_state`` holds a transactional id."""

from quorate.kernel.ids import PartitionIndex, TransactionalId
from quorate.kernel.java_hash import java_placement


def partition_for_transactional_id(transactional_id: TransactionalId, partition_count: int) -> PartitionIndex:
    return PartitionIndex(java_placement(transactional_id, partition_count))
