"""Brings the changes of in-sync replicas that leaders propose to the controller, many in one command."""

import asyncio
import logging
from collections.abc import Sequence

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import BrokerEpoch, NodeId
from quorate.metadata.core.commands import AlterIsr, IsrChange
from quorate.metadata.core.decisions import PartitionOutcome
from quorate.metadata.store import MetadataStore
from quorate.replication.core.leader_events import (
    IsrChangeOutdated,
    IsrChangeRefused,
    IsrChangeUnanswered,
    LeaderEvent,
    ProposeIsr,
)
from quorate.replication.partition import Partition

logger = logging.getLogger(__name__)

#: In one command, which every node applies in one turn of its loop.
_AT_ONCE = 500

_Proposal = tuple[Partition, ProposeIsr]

#: The controller has judged the proposal at its own epochs and said no.
_REFUSED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST})
#: The controller is ahead of the proposal.
_OUTDATED = frozenset(
    {
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class IsrProposals:
    def __init__(
        self,
        node_id: NodeId,
        broker_epoch: BrokerEpoch,
        metadata: MetadataStore,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._metadata = metadata
        self._loop = loop
        self._proposed: list[_Proposal] = []
        self._sending: asyncio.Task[None] | None = None

    def propose(self, partition: Partition, proposal: ProposeIsr) -> None:
        self._proposed.append((partition, proposal))
        if self._sending is None:
            self._sending = self._loop.create_task(self._send_all())

    def stop(self) -> None:
        if self._sending is not None:
            self._sending.cancel()

    async def _send_all(self) -> None:
        """One command at a time: what is proposed meanwhile goes with the next ones."""
        try:
            while self._proposed:
                batch, self._proposed = self._proposed[:_AT_ONCE], self._proposed[_AT_ONCE:]
                await self._send(batch)
        finally:
            self._sending = None

    async def _send(self, batch: Sequence[_Proposal]) -> None:
        command = AlterIsr(
            node_id=self._node_id,
            broker_epoch=self._broker_epoch,
            changes=tuple(_change(partition, proposal) for partition, proposal in batch),
        )
        (outcome,) = await self._metadata.submit([command])
        if isinstance(outcome, KafkaError):
            logger.debug("in-sync replicas not changed node=%s error=%s", self._node_id, outcome)
            for partition, proposal in batch:
                partition.step(IsrChangeUnanswered(proposal=proposal))
            return
        for (partition, proposal), one in zip(batch, outcome.partitions, strict=True):
            event = _fate(one, proposal)
            if event is not None:
                partition.step(event)


def _change(partition: Partition, proposal: ProposeIsr) -> IsrChange:
    return IsrChange(
        topic_id=partition.identity.topic_id,
        partition=partition.identity.partition,
        leader_epoch=proposal.leader_epoch,
        partition_epoch=proposal.partition_epoch,
        new_isr=proposal.isr,
    )


def _fate(outcome: PartitionOutcome, proposal: ProposeIsr) -> LeaderEvent | None:
    """What the leader is told; nothing where it is accepted, for then the image tells it."""
    if outcome.error is ErrorCode.NONE:
        return None
    if outcome.error in _REFUSED:
        return IsrChangeRefused(proposal=proposal)
    if outcome.error in _OUTDATED:
        return IsrChangeOutdated(proposal=proposal)
    return IsrChangeUnanswered(proposal=proposal)
