"""Gives replicas on this node the role that the metadata image has for them: leader, follower, or to wait for one."""

import logging
from typing import Protocol

from quorate.kernel.ids import NO_NODE, BrokerEpoch, NodeId, Offset, PartitionLeader
from quorate.kernel.settings import Durability
from quorate.metadata.core.image import PartitionState
from quorate.metadata.store import LeadershipListener
from quorate.replication.core.leader import LeaderStart, ReplicationConfig
from quorate.replication.core.leader_events import LiveBrokersChanged, MembershipChanged, PartitionMembership
from quorate.replication.following import follow
from quorate.replication.leading import Leading, lead
from quorate.replication.partition import Partition

logger = logging.getLogger(__name__)

_NAMED_IN_LINE = 3


class RoleReplication(Protocol):
    """What replication has to know of roles."""

    config: ReplicationConfig

    def now_ms(self) -> int: ...

    def on_leading(self, partition: Partition) -> None: ...

    def on_following(self, partition: Partition) -> None: ...

    def on_idle(self, partition: Partition) -> None: ...

    def membership_changed(self, partition: Partition) -> None: ...

    def brokers_changed(self, partition: Partition) -> None: ...


class PartitionRoles:
    def __init__(self, node_id: NodeId, durability: Durability, replication: RoleReplication) -> None:
        self._node_id = node_id
        self._durability = durability
        self._replication = replication
        #: Of the brokers that may be in sync.
        self.broker_epochs: dict[NodeId, BrokerEpoch] = {}
        self._listeners: list[LeadershipListener] = []
        #: Changes since the last line in the log.
        self._led = 0
        self._followed = 0
        self._named: list[str] = []

    def subscribe(self, listener: LeadershipListener) -> None:
        self._listeners.append(listener)

    def give(self, partition: Partition, state: PartitionState, *, elected_unclean: bool) -> None:
        if partition.failure is not None:
            self._tell(partition, state)
        elif state.leader_epoch != partition.leader_epoch:
            self._begin(partition, state, elected_unclean=elected_unclean)
            self._note(partition)
            self._tell(partition, state)
        elif isinstance(partition.role, Leading):
            partition.step(MembershipChanged(membership=_membership(state)))
            self._replication.membership_changed(partition)

    def take(self, partition: Partition) -> None:
        """The replica goes away."""
        self._replication.on_idle(partition)
        for listener in self._listeners:
            listener(partition.identity.topic, partition.identity.partition, None)

    def tell_of_brokers(self, partition: Partition) -> None:
        partition.step(LiveBrokersChanged(broker_epochs=self.broker_epochs))
        self._replication.brokers_changed(partition)

    def log_changes(self, version: int) -> None:
        """One line for a change, however many partitions it concerns."""
        count = self._led + self._followed
        if count:
            logger.info(
                "roles changed node=%s version=%s leads=%s follows=%s partitions=%s%s",
                self._node_id,
                version,
                self._led,
                self._followed,
                ",".join(self._named),
                ",…" if count > _NAMED_IN_LINE else "",
            )
            self._led = self._followed = 0
            self._named.clear()

    def _begin(self, partition: Partition, state: PartitionState, *, elected_unclean: bool) -> None:
        leader = PartitionLeader(state.leader, state.leader_epoch)
        if state.leader == self._node_id:
            lead(partition, self._leader_start(leader, state), self._replication.config)
            self._replication.on_leading(partition)
        elif state.leader == NO_NODE:
            partition.wait_for_leader(state.leader_epoch)
            self._replication.on_idle(partition)
        else:
            # An operator may ask for such an election although the topic does not allow it by itself. And where the
            # operating system writes when it likes, the last replica in sync may have lost what it had.
            allows_unclean = partition.settings.allows_unclean_elections
            may_lack = allows_unclean or elected_unclean or self._durability is Durability.OS
            follow(partition, leader, is_unclean=may_lack)
            self._replication.on_following(partition)

    def _leader_start(self, leader: PartitionLeader, state: PartitionState) -> LeaderStart:
        """What the image knows; the partition knows its own offsets."""
        return LeaderStart(
            leader=leader,
            membership=_membership(state),
            broker_epochs=self.broker_epochs,
            log_end_offset=Offset(0),
            durable_offset=Offset(0),
            high_watermark=Offset(0),
            min_insync_replicas=1,
            now_ms=self._replication.now_ms(),
        )

    def _note(self, partition: Partition) -> None:
        if isinstance(partition.role, Leading):
            self._led += 1
        else:
            self._followed += 1
        if len(self._named) < _NAMED_IN_LINE:
            self._named.append(f"{partition}@{partition.leader_epoch}")

    def _tell(self, partition: Partition, state: PartitionState) -> None:
        leader = PartitionLeader(state.leader, state.leader_epoch) if state.has_leader else None
        for listener in self._listeners:
            listener(partition.identity.topic, partition.identity.partition, leader)


def _membership(state: PartitionState) -> PartitionMembership:
    return PartitionMembership(replicas=state.replicas, isr=frozenset(state.isr), partition_epoch=state.partition_epoch)
