"""Evening out replicas and leaders over the brokers, and emptying a broker that is to go.

Plans are reassignments: each partition keeps all its replicas until the new ones are in sync.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId
from quorate.metadata.core.commands import (
    AlterPartitionReassignments,
    DrainBroker,
    PartitionReassignment,
    RebalancePartitions,
)
from quorate.metadata.core.decisions import Decision, PartitionOutcomes
from quorate.metadata.core.elections import ElectionRules
from quorate.metadata.core.image import MetadataImage, PartitionState, TopicIdPartition
from quorate.metadata.core.image_parts import without
from quorate.metadata.core.placement import PlacementLoad
from quorate.metadata.core.replica_changes import decide_reassignments


def decide_drain(image: MetadataImage, rules: ElectionRules, command: DrainBroker) -> Decision[PartitionOutcomes]:
    if command.node_id not in image.brokers:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {command.node_id} is not registered.")
    plan = drain_plan(image, command.node_id)
    return decide_reassignments(image, rules, AlterPartitionReassignments(reassignments=plan))


def decide_rebalance(
    image: MetadataImage, rules: ElectionRules, command: RebalancePartitions
) -> Decision[PartitionOutcomes]:
    plan = rebalance_plan(image, max_moves=command.max_moves)
    return decide_reassignments(image, rules, AlterPartitionReassignments(reassignments=plan))


def drain_plan(image: MetadataImage, node: NodeId) -> tuple[PartitionReassignment, ...]:
    """A new place for each replica of the node. The replacing node gets its rank among the replicas too."""
    load = PlacementLoad(image)
    plan = []
    for name, state in image.hosted_partitions(node):
        target = state.target_replicas
        if node not in target:
            continue  # On its way off already.
        others = [image.brokers[other] for other in without(target, (node,)) if other in image.brokers]
        if not any(broker.takes_records and broker.node_id not in target for broker in image.brokers.values()):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"No broker is left to take the replica of {name.topic}-{name.partition} from broker {node}.",
            )
        successor = load.best(others, excluded=node).node_id
        load.replicas[successor] += 1
        plan.append(_replacing(name, target, node, successor))
    return tuple(plan)


def rebalance_plan(image: MetadataImage, *, max_moves: int | None = None) -> tuple[PartitionReassignment, ...]:
    """The moves that even out replicas, then the changes of order that even out preferred leaders.

    A change of order moves no data; the new first replicas lead after the next preferred election. The replicas of
    removed brokers are moved first, without a limit.
    """
    lost = replacement_plan(image)
    replaced = {(move.topic, move.partition) for move in lost}
    moves = _Rebalance(image).plan(max_moves)
    return (*lost, *(move for move in moves if (move.topic, move.partition) not in replaced))


def replacement_plan(image: MetadataImage) -> tuple[PartitionReassignment, ...]:
    """New places for the replicas of removed brokers, where there are brokers that can take them."""
    load = PlacementLoad(image)
    plan = []
    for name, state in _partitions_of_gone_brokers(image):
        target = list(state.target_replicas)
        for rank, node in enumerate(target):
            others = [image.brokers[other] for other in target if other in image.brokers]
            if node not in image.brokers and any(
                image.takes_records(other) for other in image.brokers.keys() - {*target}
            ):
                target[rank] = load.best(others).node_id
                load.replicas[target[rank]] += 1
        if image.brokers.keys() >= {*target}:
            plan.append(PartitionReassignment(topic=name.topic, partition=name.partition, replicas=tuple(target)))
    return tuple(plan)


def _partitions_of_gone_brokers(image: MetadataImage) -> Iterable[tuple[TopicIdPartition, PartitionState]]:
    gone = sorted(image.hosted.keys() - image.brokers.keys())
    found = {name: state for node in gone for name, state in image.hosted_partitions(node)}
    return [(name, state) for name, state in found.items() if not image.brokers.keys() >= {*state.target_replicas}]


def _replacing(name: TopicIdPartition, replicas: tuple[NodeId, ...], old: NodeId, new: NodeId) -> PartitionReassignment:
    return PartitionReassignment(
        topic=name.topic,
        partition=name.partition,
        replicas=tuple(new if node == old else node for node in replicas),
    )


#: The partitions by their first replica and each of the others.
_LedWithFollower = defaultdict[tuple[NodeId, NodeId], dict[TopicIdPartition, None]]


class _Rebalance:
    """A greedy search: a step is taken only if it brings the loads of two brokers closer to each other."""

    def __init__(self, image: MetadataImage) -> None:
        self._brokers = {node: broker for node, broker in sorted(image.brokers.items()) if broker.takes_records}
        self._racks = {node: broker.rack for node, broker in image.brokers.items()}
        self._replicas = Counter({node: image.replica_count(node) for node in self._brokers})
        self._leaders = Counter({node: image.preferred_count(node) for node in self._brokers})
        self._targets = {
            TopicIdPartition(topic.topic_id, topic.name, index): state.replicas
            for topic in image.topics.values()
            for index, state in topic.partitions.items()
            if not state.is_reassigning
        }
        #: Pairs of which the first has nothing that the second could take. Only a move of one of its partitions to
        #: other brokers can change that, so that no pair is searched in vain twice.
        self._barren: set[tuple[NodeId, NodeId]] = set()

    def plan(self, max_moves: int | None) -> tuple[PartitionReassignment, ...]:
        before = dict(self._targets)
        self._even_out_replicas(max_moves)
        self._even_out_leaders()
        return tuple(
            PartitionReassignment(topic=name.topic, partition=name.partition, replicas=replicas)
            for name, replicas in self._targets.items()
            if replicas != before[name]
        )

    def _even_out_replicas(self, max_moves: int | None) -> None:
        held = self._held_by_node()
        moves = 0
        while (max_moves is None or moves < max_moves) and self._move_a_replica(held):
            moves += 1

    def _held_by_node(self) -> dict[NodeId, dict[TopicIdPartition, None]]:
        """The partitions each broker could give away: followers before leaders, topics mixed."""
        held: dict[NodeId, dict[TopicIdPartition, None]] = {node: {} for node in self._brokers}
        for rank_is_first in (False, True):
            for name in sorted(self._targets, key=lambda name: (name.partition, name.topic)):
                for rank, node in enumerate(self._targets[name]):
                    if node in held and (rank == 0) is rank_is_first:
                        held[node][name] = None
        return held

    def _move_a_replica(self, held: dict[NodeId, dict[TopicIdPartition, None]]) -> bool:
        for donor, receiver in self._unequal_pairs(self._replicas):
            if (donor, receiver) in self._barren:
                continue
            name = next((name for name in held[donor] if self._can_move(name, donor, receiver)), None)
            if name is None:
                self._barren.add((donor, receiver))
                continue
            replicas = self._targets[name]
            self._targets[name] = tuple(receiver if node == donor else node for node in replicas)
            self._replicas[donor] -= 1
            self._replicas[receiver] += 1
            if replicas[0] == donor:
                self._leaders[donor] -= 1
                self._leaders[receiver] += 1
            del held[donor][name]
            held[receiver][name] = None
            self._look_again(name)
            return True
        return False

    def _can_move(self, name: TopicIdPartition, donor: NodeId, receiver: NodeId) -> bool:
        replicas = self._targets[name]
        return receiver not in replicas and self._keeps_racks(replicas, donor, receiver)

    def _look_again(self, name: TopicIdPartition) -> None:
        """The partition has other replicas now: what could not be moved may be moved, and of nothing else."""
        for donor in self._targets[name]:
            for receiver in self._brokers:
                if (donor, receiver) in self._barren and self._can_move(name, donor, receiver):
                    self._barren.discard((donor, receiver))

    def _even_out_leaders(self) -> None:
        led: _LedWithFollower = defaultdict(dict)
        for name, replicas in self._targets.items():
            for follower in replicas[1:]:
                led[replicas[0], follower][name] = None
        while self._change_a_leader(led):
            pass

    def _change_a_leader(self, led: _LedWithFollower) -> bool:
        for old, new in self._unequal_pairs(self._leaders):
            name = next(iter(led[old, new]), None)
            if name is None:
                continue
            before = self._targets[name]
            swap = {old: new, new: old}
            after = self._targets[name] = tuple(swap.get(node, node) for node in before)
            self._leaders.update({old: -1, new: 1})
            for follower in before[1:]:
                del led[old, follower][name]
            for follower in after[1:]:
                led[new, follower][name] = None
            return True
        return False

    def _unequal_pairs(self, load: Counter[NodeId]) -> Iterator[tuple[NodeId, NodeId]]:
        """Pairs of a busy and an idle broker whose loads differ by two or more, the most unequal first."""
        by_load = sorted(self._brokers, key=lambda node: (load[node], node))
        for busy in reversed(by_load):
            for idle in by_load:
                if load[busy] - load[idle] < 2:
                    break
                yield busy, idle

    def _keeps_racks(self, replicas: tuple[NodeId, ...], donor: NodeId, receiver: NodeId) -> bool:
        others = {self._racks.get(node) for node in replicas if node != donor}
        return self._racks[receiver] not in others or self._racks[donor] in others
