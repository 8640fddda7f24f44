"""A controller as partition replication needs it: one partition, every change a committed image."""

import random

import msgspec

from quorate.kernel.ids import BrokerEpoch, LeaderEpoch, NodeId
from quorate.replication.core.leader_events import PartitionMembership, ProposeIsr


class Image(msgspec.Struct, frozen=True, kw_only=True):
    leader: NodeId | None
    leader_epoch: LeaderEpoch
    membership: PartitionMembership
    broker_epochs: dict[NodeId, BrokerEpoch]  # Of the live brokers.


class ModelController:
    def __init__(self, replicas: tuple[NodeId, ...], rng: random.Random) -> None:
        self._rng = rng
        self._last_broker_epoch = 0
        broker_epochs = {node: self._next_broker_epoch() for node in replicas}
        membership = PartitionMembership(replicas=replicas, isr=frozenset(replicas), partition_epoch=0)
        first = Image(
            leader=replicas[0], leader_epoch=LeaderEpoch(0), membership=membership, broker_epochs=broker_epochs
        )
        #: Nodes replay these in order, each in its own time.
        self.images = [first]

    @property
    def image(self) -> Image:
        return self.images[-1]

    def register(self, node: NodeId) -> BrokerEpoch:
        """A new life of the broker: it is in sync no more, and what it led has a new epoch."""
        self.fence(node)
        epoch = self._next_broker_epoch()
        self._commit(broker_epochs={**self.image.broker_epochs, node: epoch})
        self.elect_if_leaderless()
        return epoch

    def fence(self, node: NodeId) -> None:
        image = self.image
        live = {other: epoch for other, epoch in image.broker_epochs.items() if other != node}
        isr = image.membership.isr - {node} or image.membership.isr
        if image.leader == node:
            self._commit(broker_epochs=live, isr=isr, leader=self._electable(isr, live), new_epoch=True)
        else:
            self._commit(broker_epochs=live, isr=isr)

    def unfence(self, node: NodeId, broker_epoch: BrokerEpoch) -> None:
        if node not in self.image.broker_epochs:
            self._commit(broker_epochs={**self.image.broker_epochs, node: broker_epoch})
            self.elect_if_leaderless()

    def elect_if_leaderless(self) -> None:
        chosen = self._electable(self.image.membership.isr, self.image.broker_epochs)
        if self.image.leader is None and chosen is not None:
            self._commit(leader=chosen, new_epoch=True)

    def move_leadership(self) -> None:
        chosen = self._electable(self.image.membership.isr, self.image.broker_epochs)
        if chosen is not None:
            self._commit(leader=chosen, new_epoch=True)

    def judge(self, proposer: NodeId, proposal: ProposeIsr) -> str:
        """``accepted``, ``refused`` or ``outdated``."""
        image = self.image
        if (image.leader, image.leader_epoch) != (proposer, proposal.leader_epoch):
            return "outdated"
        if proposal.partition_epoch != image.membership.partition_epoch:
            return "outdated"
        if any(image.broker_epochs.get(member.node_id) != member.broker_epoch for member in proposal.isr):
            return "refused"
        self._commit(isr=frozenset(member.node_id for member in proposal.isr), accepted=True)
        return "accepted"

    def _electable(self, isr: frozenset[NodeId], live: dict[NodeId, BrokerEpoch]) -> NodeId | None:
        candidates = sorted(isr & live.keys())
        return self._rng.choice(candidates) if candidates else None

    def _next_broker_epoch(self) -> BrokerEpoch:
        self._last_broker_epoch += 1
        return BrokerEpoch(self._last_broker_epoch)

    def _commit(
        self,
        *,
        leader: NodeId | None = None,
        new_epoch: bool = False,
        accepted: bool = False,
        isr: frozenset[NodeId] | None = None,
        broker_epochs: dict[NodeId, BrokerEpoch] | None = None,
    ) -> None:
        last = self.image
        membership = last.membership
        if new_epoch or accepted or (isr is not None and isr != membership.isr):
            membership = PartitionMembership(
                replicas=membership.replicas,
                isr=membership.isr if isr is None else isr,
                partition_epoch=membership.partition_epoch + 1,
            )
        self.images.append(
            Image(
                leader=leader if new_epoch else last.leader,
                leader_epoch=LeaderEpoch(last.leader_epoch + new_epoch),
                membership=membership,
                broker_epochs=last.broker_epochs if broker_epochs is None else broker_epochs,
            )
        )
