"""Placing replicas: over racks, evenly over brokers, leaders in turn.

Counts come from the image's index, so that placing a topic does not look at the others.
"""

from collections import Counter
from enum import StrEnum

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId
from quorate.metadata.core.image import Broker, MetadataImage


class LeaderPlacement(StrEnum):
    """The policy for electing one of several possible leaders."""

    SPREAD = "spread"
    #: The node that leads the quorum, wherever it is a replica.
    QUORUM_LEADER = "quorum-leader"


def place_partitions(image: MetadataImage, *, count: int, replication_factor: int) -> list[tuple[NodeId, ...]]:
    """The replicas of each new partition, preferred leader first.

    Brokers are taken least loaded first, so that a topic of one partition does not always land on the same node. As
    in Apache Kafka, one that cannot lead now gets a replica only where there are too few others, and never the first.
    One whose disk is full comes after all others that are at work.
    """
    active = [broker for broker in image.brokers.values() if broker.is_active]
    _check_enough(replication_factor, registered=len(image.brokers), active=len(active))
    load = PlacementLoad(image)
    return [load.place(replication_factor) for _ in range(count)]


class PlacementLoad:
    """The load of every broker, counting what was placed since the image."""

    def __init__(self, image: MetadataImage) -> None:
        self._brokers = [image.brokers[node] for node in sorted(image.brokers)]
        self.replicas = Counter({node: image.replica_count(node) for node in image.brokers})
        self.leaders = Counter({node: image.preferred_count(node) for node in image.brokers})

    def place(self, replication_factor: int) -> tuple[NodeId, ...]:
        first = min(
            (broker for broker in self._brokers if broker.is_active),
            key=lambda broker: (
                not broker.has_room,
                self.leaders[broker.node_id],
                self.replicas[broker.node_id],
                broker.node_id,
            ),
        )
        chosen = [first]
        while len(chosen) < replication_factor:
            chosen.append(self.best(chosen))
        placement = tuple(broker.node_id for broker in chosen)
        self.leaders[placement[0]] += 1
        self.replicas.update(placement)
        return placement

    def best(self, chosen: list[Broker], excluded: NodeId | None = None) -> Broker:
        """The broker for the next replica: one that works, in a rack of its own if there is one, the least loaded."""
        taken = {broker.node_id for broker in chosen}
        racks = Counter(broker.rack or "" for broker in chosen)
        return min(
            (broker for broker in self._brokers if broker.node_id not in taken and broker.node_id != excluded),
            key=lambda broker: (
                not broker.is_active,
                not broker.has_room,
                racks[broker.rack or ""],
                self.replicas[broker.node_id],
                broker.node_id,
            ),
        )


def _check_enough(replication_factor: int, *, registered: int, active: int) -> None:
    if replication_factor > registered:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): "
            f"only {registered} broker(s) are registered.",
        )
    if not active:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are fenced or shutting down: none could lead."
        )
