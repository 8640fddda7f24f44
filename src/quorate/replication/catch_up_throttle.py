"""How fast replicas that are out of sync may catch up, so that moving data leaves room for the clients.

Both sides have a limit, as with Apache Kafka: what a node gives as leader (``leader.replication.throttled.*``) and what
it takes as follower (``follower.replication.throttled.*``). The rate is the broker's; which replicas it holds for, the
topic says. Replicas in sync are never held back: ``acks=all`` waits for them.
"""

import asyncio
import enum
from typing import cast

from quorate.kernel.ids import NodeId
from quorate.metadata.core.effective_configs import BrokerView, broker_value, topic_value
from quorate.metadata.core.image import TopicIdPartition
from quorate.metadata.store import MetadataStore

#: Unused allowance is kept for this long at most.
_BURST_S = 1.0


class ThrottledSide(enum.Enum):
    LEADER = "leader"
    FOLLOWER = "follower"


class CatchUpThrottle:
    def __init__(
        self, side: ThrottledSide, metadata: MetadataStore, view: BrokerView, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._side = side
        self._metadata = metadata
        self._view = view
        self._loop = loop
        #: What may be moved now; below zero after a batch that was larger than what was left.
        self.allowance_bytes = 0.0
        self._counted_at = loop.time()

    def applies_to(self, identity: TopicIdPartition, follower: NodeId) -> bool:
        """Whether the follower is out of sync, and the topic says that this node's replica is to be slowed down."""
        image = self._metadata.image
        state = image.partition(identity.topic, identity.partition)
        if state is None or follower in state.isr:
            return False
        name = f"{self._side.value}.replication.throttled.replicas"
        named = cast(tuple[str, ...], topic_value(image, self._view, identity.topic, name))
        return "*" in named or f"{identity.partition}:{self._view.node_id}" in named

    def wait_s(self) -> float:
        """How long until something may be moved; 0 if it may be now."""
        rate = max(1, self._bytes_per_second())
        now = self._loop.time()
        earned = (now - self._counted_at) * rate
        self._counted_at = now
        self.allowance_bytes = min(self.allowance_bytes + earned, rate * _BURST_S)
        return 0.0 if self.allowance_bytes > 0 else -self.allowance_bytes / rate + 0.001

    def moved(self, size_bytes: int) -> None:
        self.allowance_bytes -= size_bytes

    def _bytes_per_second(self) -> int:
        name = f"{self._side.value}.replication.throttled.rate"
        return cast(int, broker_value(self._metadata.image, self._view, name))
