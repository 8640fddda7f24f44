"""A leader with two followers, as the tests of its rules need it, and what a follower asks."""

from uuid import UUID

from quorate.kernel.ids import BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionLeader
from quorate.metadata.core.commands import IsrMember
from quorate.replication.core.divergence import ReplicaLog
from quorate.replication.core.follower import FollowerReplica
from quorate.replication.core.leader import LeaderReplica, LeaderStart, ReplicationConfig
from quorate.replication.core.leader_events import (
    FollowerFetched,
    HighWatermarkAdvanced,
    LeaderAppended,
    LeaderEffect,
    LeaderEvent,
    MembershipChanged,
    PartitionMembership,
    ProposeIsr,
    TimePassed,
)
from quorate.replication.core.messages import FetchPosition

LEADER, NEAR, FAR = NodeId(7), NodeId(3), NodeId(12)
EPOCHS = {LEADER: BrokerEpoch(70), NEAR: BrokerEpoch(30), FAR: BrokerEpoch(120)}
LAG_MS = 10_000


def fetch_of(follower: FollowerReplica, log: ReplicaLog) -> FetchPosition:
    """What the follower asks for next."""
    return FetchPosition(
        UUID(int=1), 0, follower.leader.leader_epoch, log.log_end_offset, log.last_epoch, Offset(0), Offset(0)
    )


class LedPartition:
    """A leader, and the high watermark that its partition keeps for it."""

    def __init__(self, start: LeaderStart, config: ReplicationConfig) -> None:
        self.leader = LeaderReplica(start, config)
        self.high_watermark = self.leader.advanced(start.high_watermark)

    def step(self, event: LeaderEvent) -> list[LeaderEffect]:
        effects = self.leader.step(event, self.high_watermark)
        for effect in effects:
            if isinstance(effect, HighWatermarkAdvanced):
                self.high_watermark = effect.offset
        return effects


def membership(*isr: NodeId, partition_epoch: int = 1) -> PartitionMembership:
    return PartitionMembership(replicas=(LEADER, NEAR, FAR), isr=frozenset(isr), partition_epoch=partition_epoch)


def leader_of(
    *isr: NodeId,
    log_end: int = 0,
    durable: int = 0,
    high_watermark: int = 0,
    requires_sync: bool = False,
    min_insync_replicas: int = 2,
    broker_epochs: dict[NodeId, BrokerEpoch] | None = None,
) -> LedPartition:
    start = LeaderStart(
        leader=PartitionLeader(node_id=LEADER, leader_epoch=LeaderEpoch(4)),
        membership=membership(*isr),
        broker_epochs=EPOCHS if broker_epochs is None else broker_epochs,
        log_end_offset=Offset(log_end),
        durable_offset=Offset(durable),
        high_watermark=Offset(high_watermark),
        min_insync_replicas=min_insync_replicas,
        now_ms=0,
    )
    config = ReplicationConfig(requires_sync=requires_sync, replica_lag_time_max_ms=LAG_MS, isr_retry_backoff_ms=100)
    return LedPartition(start, config)


def appended(offset: int, *, now_ms: int = 0) -> LeaderAppended:
    return LeaderAppended(log_end_offset=Offset(offset), now_ms=now_ms)


def fetched(follower: NodeId, offset: int, *, now_ms: int = 0, broker_epoch: int | None = None) -> FollowerFetched:
    epoch = EPOCHS[follower] if broker_epoch is None else BrokerEpoch(broker_epoch)
    return FollowerFetched(follower=follower, broker_epoch=epoch, fetch_offset=Offset(offset), now_ms=now_ms)


def committed(*isr: NodeId, partition_epoch: int) -> MembershipChanged:
    return MembershipChanged(membership=membership(*isr, partition_epoch=partition_epoch))


def passed(now_ms: int) -> TimePassed:
    return TimePassed(now_ms=now_ms)


def proposal(number: int, *isr: NodeId, partition_epoch: int = 1, leader_epoch: int = 4) -> ProposeIsr:
    return ProposeIsr(
        number=number,
        isr=tuple(IsrMember(node_id=node, broker_epoch=EPOCHS[node]) for node in sorted(isr)),
        leader_epoch=LeaderEpoch(leader_epoch),
        partition_epoch=partition_epoch,
    )


def proposals(effects: list[LeaderEffect]) -> list[ProposeIsr]:
    return [effect for effect in effects if isinstance(effect, ProposeIsr)]
