"""One run from one seed: a cluster, clients that write and read, faults; in the end everything is where it must be."""

from collections.abc import Mapping, Sequence
from random import Random

import msgspec

from quorate.kernel.ids import NodeId, Offset, PartitionIndex, TopicName
from quorate.kernel.settings import Durability
from quorate.metadata.core.image import PartitionState
from quorate.storage.log import PartitionLog
from tests.simulation.checked_log import check_segments
from tests.simulation.replication.clients import PARTITION_COUNT, TOPIC, Client, Producer, Reader, values_of
from tests.simulation.replication.cluster import ClusterShape, ReplicatedCluster
from tests.simulation.replication.faults import Faults
from tests.simulation.replication.history import History, HistoryBroken
from tests.simulation.replication.watching import ReplicaWatch
from tests.simulation.world.executor import WorkDelay
from tests.simulation.world.world import World

_RECOVERED_WITHIN_S = 40
#: So much of the time is spent in syncs that faults often find one under way.
_SLOW_SYNCS = WorkDelay(minimum_ms=10, maximum_ms=60, slow_probability=0.05, slow_ms=500)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    shape: ClusterShape
    acknowledged: int
    read: int
    #: How often a high watermark moved on a leader.
    advances: int
    #: How often records went with the power of the last replica in sync, as durability ``os`` permits.
    losses: int
    #: How often the partitions changed their leaders.
    elections: int
    virtual_s: float
    digest: str


def run_seed(seed: int, shape: ClusterShape | None = None, faults: Sequence[str] = ()) -> Report:
    """Raises if an invariant does not hold. Shape and faults are drawn unless they are given."""
    with World(seed, work_delay=_SLOW_SYNCS if seed % 3 == 0 else None) as world:
        shape = shape or draw_shape(seed)
        cluster = ReplicatedCluster(world, shape)
        history = History()
        watch = ReplicaWatch(cluster, history)
        with watch.watching():
            world.run(_scenario(cluster, history, faults), within_s=900)
        return Report(
            shape=shape,
            acknowledged=history.acknowledged_count,
            read=history.read_count,
            advances=watch.advances,
            losses=watch.losses,
            elections=sum(state.leader_epoch for state in _partitions(cluster).values()),
            virtual_s=world.now,
            digest=world.trace.digest(),
        )


def draw_shape(seed: int) -> ClusterShape:
    random = Random(f"{seed}/shape")
    return ClusterShape(
        durability=Durability.OS if seed % 4 == 0 else Durability.FSYNC,
        nodes=random.choice([3, 3, 5]),
        lag_ms=random.choice([400, 2_000]),
    )


async def _scenario(cluster: ReplicatedCluster, history: History, faults: Sequence[str]) -> None:
    world, host = cluster.world, cluster.client_host
    await cluster.start()
    await host.run(Client(cluster, history, "first").create_topic())
    clients: list[Client] = [
        *(Producer(cluster, history, str(number), is_idempotent=number % 3 != 0) for number in range(3)),
        *(Reader(cluster, history, f"reader-{number}", f"rack-{number}") for number in (1, 4)),
    ]
    for client in clients:
        host.spawn(client.run())
    await Faults(cluster, world.random).run(world.random.randint(5, 12), faults)
    await world.until(lambda: _is_well(cluster), within_s=_RECOVERED_WITHIN_S)
    before = history.acknowledged_count
    await world.until(lambda: history.acknowledged_count > before + 3, within_s=_RECOVERED_WITHIN_S)
    for client in clients:
        client.is_over = True
    await world.until(lambda: _is_level(cluster), within_s=_RECOVERED_WITHIN_S)
    _check_logs(cluster, history)


def _partitions(cluster: ReplicatedCluster) -> Mapping[PartitionIndex, PartitionState]:
    return cluster.newest_image().topics[TopicName(TOPIC)].partitions


def _is_well(cluster: ReplicatedCluster) -> bool:
    """Every partition has a leader, all of its replicas are in sync, and none is on its way elsewhere."""
    states = _partitions(cluster).values()
    return all(state.has_leader and len(state.isr) == len(state.replicas) == 3 for state in states)


def _logs(cluster: ReplicatedCluster) -> dict[tuple[NodeId, int], tuple[PartitionLog, Offset]] | None:
    """Of all replicas; None while one of them is still to come: a partition may be on its way again."""
    found: dict[tuple[NodeId, int], tuple[PartitionLog, Offset]] = {}
    for index, state in _partitions(cluster).items():
        for node_id in state.replicas:
            replica = cluster.replica(node_id, TopicName(TOPIC), PartitionIndex(index))
            if replica is None:
                return None
            found[node_id, index] = replica.log, replica.high_watermark
    return found


def _is_level(cluster: ReplicatedCluster) -> bool:
    """Nothing is on its way any more: everybody has everything, and knows that it is committed."""
    logs = _logs(cluster)
    if logs is None:
        return False
    ends = {(index, log.log_end_offset) for (_, index), (log, _) in logs.items()}
    return len(ends) == PARTITION_COUNT and all(log.log_end_offset == mark for log, mark in logs.values())


def _check_logs(cluster: ReplicatedCluster, history: History) -> None:
    logs = _logs(cluster)
    assert logs is not None
    for (node_id, index), (log, _) in logs.items():
        check_segments(log)
        history.check_log(index, _content(log), f"the log on node {node_id}")


def _content(log: PartitionLog) -> dict[Offset, bytes]:
    content: dict[Offset, bytes] = {}
    position = log.log_start_offset
    while position < log.log_end_offset:
        piece = log.read(position, max_bytes=1 << 20, up_to_offset=log.log_end_offset, minimum_one_batch=True).read()
        for offset, value in values_of(piece):
            if offset in content:
                raise HistoryBroken(f"{log.directory} holds {offset} twice")
            content[offset] = value
            position = Offset(offset + 1)
    return content
