"""What happens to a large cluster, each as the commands that the nodes of a real one would send."""

from collections import defaultdict
from collections.abc import Iterable

from quorate.kernel.ids import NodeId, TopicName
from quorate.metadata.core import commands as c
from quorate.metadata.core.image import MetadataImage, PartitionState, TopicIdPartition
from quorate.quorum.metadata_store import parts_of
from tests.simulation.scale.agreed import FIRST_NODE, AgreedCluster, Cost, total

REPLICAS = 3


def form(cluster: AgreedCluster, nodes: int) -> Cost:
    return total([cluster.join(NodeId(FIRST_NODE + number)) for number in range(nodes)])


def create_topics(cluster: AgreedCluster, prefix: str, count: int, partitions: int) -> Cost:
    """As an admin client does it, in large requests."""
    commands = [
        c.CreateTopic(name=TopicName(f"{prefix}-{number}"), partition_count=partitions, replication_factor=REPLICAS)
        for number in range(count)
    ]
    return total([cluster.submit(*part) for part in parts_of(cluster.image, commands)])


def kill(cluster: AgreedCluster, node: NodeId) -> Cost:
    """Its process ends, which its peers notice: others lead in its place."""
    return cluster.submit(c.FenceBroker(node_id=node, broker_epoch=cluster.epoch(node)))


def bring_back(cluster: AgreedCluster, node: NodeId) -> Cost:
    """It registers anew, and each leader takes it back into the in-sync sets in a proposal of its own."""
    return total([cluster.join(node), *_catch_up(cluster, node)])


def add(cluster: AgreedCluster, node: NodeId) -> Cost:
    """It joins, is given its share of the replicas, and each leader reports when they are in sync."""
    joined = cluster.join(node)
    shared = cluster.submit(c.RebalancePartitions())
    return total([joined, shared, *_catch_up_all(cluster)])


def change_one_isr(cluster: AgreedCluster) -> Cost:
    """One follower of one partition falls behind: the smallest change that a running cluster makes."""
    name, state = _first_partition(cluster.image)
    return cluster.submit(_proposal(cluster, state.leader, [(name, state, state.isr[:-1])]))


def _first_partition(image: MetadataImage) -> tuple[TopicIdPartition, PartitionState]:
    topic = next(iter(image.topics.values()))
    index, state = next((index, state) for index, state in topic.partitions.items() if len(state.isr) > 1)
    return TopicIdPartition(topic.topic_id, topic.name, index), state


def _catch_up(cluster: AgreedCluster, node: NodeId) -> Iterable[Cost]:
    by_leader = defaultdict(list)
    for name, state in cluster.image.hosted_partitions(node):
        if node not in state.isr and state.has_leader:
            by_leader[state.leader].append((name, state, (*state.isr, node)))
    for leader, changes in by_leader.items():
        yield cluster.submit(_proposal(cluster, leader, changes))


def _catch_up_all(cluster: AgreedCluster) -> Iterable[Cost]:
    by_leader = defaultdict(list)
    for topic in cluster.image.topics.values():
        for index, state in topic.partitions.items():
            if state.adding_replicas:
                name = TopicIdPartition(topic.topic_id, topic.name, index)
                by_leader[state.leader].append((name, state, (*state.isr, *state.adding_replicas)))
    for leader, changes in by_leader.items():
        yield cluster.submit(_proposal(cluster, leader, changes))


#: A partition, its state, and the in-sync set that its leader wants.
_Wanted = tuple[TopicIdPartition, PartitionState, tuple[NodeId, ...]]


def _proposal(cluster: AgreedCluster, leader: NodeId, changes: Iterable[_Wanted]) -> c.AlterIsr:
    return c.AlterIsr(
        node_id=leader,
        broker_epoch=cluster.epoch(leader),
        changes=tuple(
            c.IsrChange(
                topic_id=name.topic_id,
                partition=name.partition,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                new_isr=tuple(c.IsrMember(node_id=each, broker_epoch=cluster.epoch(each)) for each in isr),
            )
            for name, state, isr in changes
        ),
    )
