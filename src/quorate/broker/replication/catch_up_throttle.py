"""How fast followers that are out of sync may be given the records of throttled partitions.

So that moving data leaves room for the clients. Replicas in sync are never held back: ``acks=all`` waits for them. What
is throttled, and how much, says ``leader.replication.throttled.*``, as with Apache Kafka.
"""

import asyncio
from collections.abc import Callable

from quorate.broker.partition import Partition
from quorate.kernel.ids import NodeId

#: Unused allowance is kept for this long at most.
_BURST_S = 1.0


class CatchUpThrottle:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        bytes_per_second: Callable[[], int],
        is_throttled: Callable[[Partition], bool],
    ) -> None:
        self._loop = loop
        self._bytes_per_second = bytes_per_second
        self._is_throttled = is_throttled
        #: What may be given now; below zero after a batch that was larger than what was left.
        self.allowance_bytes = 0.0
        self._counted_at = loop.time()

    def applies_to(self, partition: Partition, follower: NodeId) -> bool:
        leading = partition.leading
        return leading is not None and follower not in leading.isr and self._is_throttled(partition)

    def wait_s(self) -> float:
        """How long until something may be given; 0 if it may be now."""
        rate = max(1, self._bytes_per_second())
        now = self._loop.time()
        earned = (now - self._counted_at) * rate
        self._counted_at = now
        self.allowance_bytes = min(self.allowance_bytes + earned, rate * _BURST_S)
        return 0.0 if self.allowance_bytes > 0 else -self.allowance_bytes / rate + 0.001

    def given(self, size_bytes: int) -> None:
        self.allowance_bytes -= size_bytes
