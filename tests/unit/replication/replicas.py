"""Replicas of one partition on two nodes, without the nodes: real logs on simulated disks, time by hand."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from quorate.kernel.conditions import Conditions
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import (
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    PartitionLeader,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicName,
)
from quorate.kernel.settings import Durability
from quorate.metadata.core.image import TopicIdPartition
from quorate.records.builder import build_batch
from quorate.records.record import Record
from quorate.replication import following, leading
from quorate.replication.core.leader import LeaderStart, ReplicationConfig
from quorate.replication.core.leader_events import PartitionMembership, ProposeIsr
from quorate.replication.core.messages import PartitionKey
from quorate.replication.disk_room import DiskRoom
from quorate.replication.group_commit import GroupCommit
from quorate.replication.integrity.log_integrity import LogIntegrity
from quorate.replication.leading import require_leading
from quorate.replication.partition import Partition
from quorate.replication.partition_settings import PartitionSettings
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from tests.simulation.world.executor import WorkDelay
from tests.simulation.world.host import SimulatedHost
from tests.simulation.world.world import World

LEADER, FOLLOWER, THIRD = NodeId(7), NodeId(100), NodeId(4001)
NOW_MS = 1_700_000_000_000
TOPIC_ID = TopicId(UUID(int=1))
BROKER_EPOCHS = {LEADER: BrokerEpoch(11), FOLLOWER: BrokerEpoch(12), THIRD: BrokerEpoch(13)}
QUICK = WorkDelay(minimum_ms=0.1, maximum_ms=0.1, slow_probability=0)


class FakePort:
    """Notes what partitions ask of their node."""

    def __init__(self, host: SimulatedHost) -> None:
        self._host = host
        self.proposals: list[ProposeIsr] = []
        self.unsettled: list[Partition] = []
        self.synced: Callable[[Partition], None] = lambda _: None

    def now_ms(self) -> int:
        return round(self._host.loop.time() * 1000)

    def propose_isr(self, partition: Partition, proposal: ProposeIsr) -> None:
        self.proposals.append(proposal)

    def watch_lag(self, partition: Partition) -> None:
        self.unsettled.append(partition)

    def synced_as_follower(self, partition: Partition) -> None:
        self.synced(partition)

    def lost_its_disk(self, partition: Partition, failure: KafkaError) -> None:
        raise AssertionError(f"{partition} lost its disk: {failure}")


def fail(error: Exception) -> None:
    raise error


class Replicas:
    """The partitions of one node, and what they do to it."""

    def __init__(self, host: SimulatedHost, durability: Durability = Durability.FSYNC) -> None:
        self.host = host
        self.port = FakePort(host)
        self.durability = durability
        self.group_commit = GroupCommit(host.loop, host.executor)
        self.by_key: dict[PartitionKey, Partition] = {}
        self.integrity = LogIntegrity(
            LEADER, host.disk, Conditions(), loop=host.loop, executor=host.executor, on_failure=fail
        )
        host.executor.delay = QUICK

    def open(self, index: int = 0) -> Partition:
        log = PartitionLog.open(self.host.disk, f"/data/orders-{index}", LogConfig())
        partition = Partition(
            TopicIdPartition(TOPIC_ID, TopicName("orders"), PartitionIndex(index)),
            log,
            PartitionSettings(log=LogConfig(), codec=None, min_insync_replicas=1),
            durability=self.durability,
            group_commit=self.group_commit,
            replication=self.port,
            room=DiskRoom(),
            integrity=self.integrity,
        )
        self.by_key[TOPIC_ID, index] = partition
        return partition

    def find_led(self, key: PartitionKey) -> Partition:
        partition = self.by_key.get(key)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        require_leading(partition)
        return partition


def lead(
    partition: Partition,
    epoch: int,
    isr: tuple[NodeId, ...] = (LEADER, FOLLOWER),
    replicas: tuple[NodeId, ...] = (LEADER, FOLLOWER, THIRD),
    *,
    config: ReplicationConfig | None = None,
    partition_epoch: int = 1,
) -> None:
    leading.lead(
        partition,
        LeaderStart(
            leader=PartitionLeader(LEADER, LeaderEpoch(epoch)),
            membership=PartitionMembership(replicas=replicas, isr=frozenset(isr), partition_epoch=partition_epoch),
            broker_epochs=BROKER_EPOCHS,
            log_end_offset=Offset(0),
            durable_offset=Offset(0),
            high_watermark=Offset(0),
            min_insync_replicas=1,
            now_ms=0,
        ),
        config or ReplicationConfig(),
    )


def follow(partition: Partition, epoch: int, leader: NodeId = LEADER, *, is_unclean: bool = False) -> None:
    following.follow(partition, PartitionLeader(leader, LeaderEpoch(epoch)), is_unclean=is_unclean)


def batch(*values: bytes, producer_id: int | None = None) -> memoryview:
    """As a producer sends it; an idempotent one with its first sequence."""
    records = [Record(Offset(index), 1_700_000_000_000, None, value) for index, value in enumerate(values)]
    if producer_id is None:
        return memoryview(bytearray(build_batch(records)))
    built = build_batch(records, producer_id=ProducerId(producer_id), producer_epoch=ProducerEpoch(0), base_sequence=0)
    return memoryview(bytearray(built))


def produced(sequence: int, producer_id: int = 7, epoch: int = 0) -> memoryview:
    """One record of an idempotent producer."""
    built = build_batch(
        [Record(Offset(0), NOW_MS, None, b"value")],
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=sequence,
    )
    return memoryview(bytearray(built))


def write(partition: Partition, *values: bytes) -> None:
    """One batch as a producer sends it."""
    partition.append(batch(*values), 1_700_000_000_000)


def run(scenario: Callable[[World, SimulatedHost, SimulatedHost], Coroutine[Any, Any, None]]) -> None:
    """The scenario's futures belong to the leader's loop: it runs there."""
    with World(1) as world:
        leader, follower = world.add_host("leader"), world.add_host("follower")
        world.run(leader.run(scenario(world, leader, follower)))


async def turns(count: int = 3) -> None:
    """Let what was scheduled for the end of this loop turn happen."""
    for _ in range(count):
        await asyncio.sleep(0)
