"""Whether enough replicas are in sync for ``acks=all``: the one rule that leaders follow and tools report."""


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """A topic with fewer replicas than ``min.insync.replicas`` needs them all, and no more."""
    return min(min_insync_replicas, replica_count)
