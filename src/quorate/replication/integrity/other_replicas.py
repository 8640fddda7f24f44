"""Who else has a partition, by the metadata image, and how this node has another replica lead it."""

import asyncio
import logging

from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import BrokerEpoch, NodeId
from quorate.metadata.core.commands import LedPartition, ResignLeadership
from quorate.metadata.store import MetadataStore
from quorate.replication.leading import Leading
from quorate.replication.partition import Partition

logger = logging.getLogger(__name__)

_HANDOVER_WITHIN_S = 5.0
_LOOKS = 100


class OtherReplicas:
    def __init__(self, node_id: NodeId, broker_epoch: BrokerEpoch, metadata: MetadataStore) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._metadata = metadata

    def of(self, partition: Partition) -> list[NodeId]:
        """The other live replicas: the leader first, then those in sync."""
        identity, image = partition.identity, self._metadata.image
        topic = image.topic_by_id(identity.topic_id)
        state = None if topic is None else topic.partitions.get(identity.partition)
        if state is None:
            return []
        others = [node for node in state.replicas if node != self._node_id and image.is_live(node)]
        return sorted(others, key=lambda node: (node != state.leader, node not in state.isr))

    async def resign(self, partition: Partition) -> None:
        """Have another in-sync replica lead; returns when one does, or when there is none."""
        role = partition.role
        if not isinstance(role, Leading) or len(role.isr) < 2:
            return
        identity = partition.identity
        led = LedPartition(identity.topic_id, identity.partition, partition.leader_epoch)
        command = ResignLeadership(node_id=self._node_id, broker_epoch=self._broker_epoch, partitions=(led,))
        (outcome,) = await self._metadata.submit([command])
        if isinstance(outcome, KafkaError):
            logger.warning("leadership not handed over partition=%s error=%s", partition, outcome)
            return
        logger.info("leadership handed over partition=%s reason='records are damaged on this disk'", partition)
        for _ in range(_LOOKS):
            if partition.role is not role:
                return
            await asyncio.sleep(_HANDOVER_WITHIN_S / _LOOKS)
