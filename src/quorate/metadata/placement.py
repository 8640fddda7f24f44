"""Where replicas go: even over brokers, leaders in turn. Pure."""

from collections import Counter
from collections.abc import Iterable

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId
from quorate.metadata.image import MetadataImage


def place_partitions(image: MetadataImage, *, count: int, replication_factor: int) -> list[tuple[NodeId, ...]]:
    """The replicas of each new partition, preferred leader first.

    Brokers are taken least loaded first, so that a topic of one partition does not always land on the same node.
    """
    brokers = sorted(image.brokers)
    if replication_factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): "
            f"only {len(brokers)} broker(s) are registered.",
        )
    leaders: Counter[NodeId] = Counter()
    replicas: Counter[NodeId] = Counter()
    for placed in _existing_placements(image):
        leaders[placed[0]] += 1
        replicas.update(placed)
    placements: list[tuple[NodeId, ...]] = []
    for _ in range(count):
        first = min(brokers, key=lambda node: (leaders[node], replicas[node], node))
        others = sorted((node for node in brokers if node != first), key=lambda node: (replicas[node], node))
        placement = (first, *others[: replication_factor - 1])
        leaders[first] += 1
        replicas.update(placement)
        placements.append(placement)
    return placements


def _existing_placements(image: MetadataImage) -> Iterable[tuple[NodeId, ...]]:
    for topic in image.topics.values():
        for state in topic.partitions.values():
            yield state.replicas
