"""One size of cluster: everything that happens to it, what it costs, and what must be true of it at the end."""

import msgspec

from quorate.kernel.ids import NodeId
from quorate.metadata.core.image import MetadataImage
from tests.simulation.scale.agreed import FIRST_NODE, AgreedCluster, Cost
from tests.simulation.scale.image_costs import ImageCosts, measure_image
from tests.simulation.scale.operations import (
    REPLICAS,
    add,
    bring_back,
    change_one_isr,
    create_topics,
    form,
    kill,
)

LARGEST_TOPIC = 10_000
#: A rebalance stops where no move brings two nodes closer.
_UNEVEN_AT_MOST = 2


class Size(msgspec.Struct, frozen=True, kw_only=True):
    nodes: int
    partitions: int
    #: Of each topic, but for the large one that is made at the end.
    topic_partitions: int = 1_000


class SizeCosts(msgspec.Struct, frozen=True, kw_only=True):
    size: Size
    operations: dict[str, Cost]
    image: ImageCosts


def measure_size(size: Size, *, with_memory: bool = True) -> SizeCosts:
    """Raises where the cluster is not what it must be."""
    cluster = AgreedCluster()
    victim, newcomer = NodeId(FIRST_NODE + size.nodes // 2), NodeId(FIRST_NODE + size.nodes)
    operations = {
        "form the cluster": form(cluster, size.nodes),
        "create all topics": create_topics(
            cluster, "topic", size.partitions // size.topic_partitions, size.topic_partitions
        ),
        "change one ISR": change_one_isr(cluster),
        "create a topic of 1": create_topics(cluster, "small", 1, 1),
    }
    image = measure_image(cluster.image, with_memory=with_memory)
    operations["kill a node"] = kill(cluster, victim)
    check_led(cluster.image, without=victim)
    operations["bring it back"] = bring_back(cluster, victim)
    operations["add a node"] = add(cluster, newcomer)
    check_whole(cluster.image)
    check_even(cluster.image)
    large = min(LARGEST_TOPIC, size.partitions // 10)
    operations[f"create a topic of {large:,}"] = create_topics(cluster, "large", 1, large)
    check_whole(cluster.image)
    return SizeCosts(size=size, operations=operations, image=image)


def check_led(image: MetadataImage, without: NodeId) -> None:
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            if not state.has_leader or state.leader == without or without in state.isr:
                raise AssertionError(f"{topic.name}-{index} is led by {state.leader}, in sync {state.isr}")


def check_whole(image: MetadataImage) -> None:
    """Everything in sync and nothing under way; but for the one follower that fell behind."""
    behind = [
        f"{topic.name}-{index}"
        for topic in image.topics.values()
        for index, state in topic.partitions.items()
        if state.is_reassigning or len(state.isr) < REPLICAS
    ]
    if len(behind) > 1:
        raise AssertionError(f"not in sync: {behind[:5]} and {len(behind)} in all")


def check_even(image: MetadataImage) -> None:
    """Within each rack: each partition has one replica in each of three, however many nodes these have."""
    for rack in {broker.rack for broker in image.brokers.values()}:
        counts = sorted(image.replica_count(node) for node, broker in image.brokers.items() if broker.rack == rack)
        if counts[-1] - counts[0] > _UNEVEN_AT_MOST:
            raise AssertionError(f"replicas are spread unevenly in {rack}: {counts}")
