"""Moving partitions to other replicas (KIP-455).

While a reassignment is under way the replicas are the union of the target and what is to go; it is complete when every
target is in sync, which a change of the in-sync set decides. Nothing is given up before that.
"""

from collections.abc import Iterable, Iterator

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_NODE, NO_TOPIC_ID, NodeId
from quorate.metadata.core.commands import AlterPartitionReassignments, PartitionName, PartitionReassignment
from quorate.metadata.core.decisions import Decision, PartitionOutcome, failed, succeeded
from quorate.metadata.core.elections import ElectionRules, Elections
from quorate.metadata.core.image import MetadataImage, PartitionState, TopicIdPartition
from quorate.metadata.core.image_parts import without


def decide_reassignments(image: MetadataImage, rules: ElectionRules, command: AlterPartitionReassignments) -> Decision:
    elections = Elections(image, rules)
    outcomes = tuple(
        _decide(image, elections, wanted, resizing_allowed=command.allow_replication_factor_change)
        for wanted in command.reassignments
    )
    return Decision(records=elections.edits.records(), partitions=outcomes)


def completed(elections: Elections, state: PartitionState) -> PartitionState:
    """The state after a reassignment whose targets are all in sync; any other state as it is."""
    target = state.target_replicas
    if not state.is_reassigning or not set(target) <= set(state.isr):
        return state
    isr = tuple(node for node in state.isr if node in target)
    leader = state.leader if state.leader in target else elections.candidate(state, isr)
    if leader == NO_NODE:
        return state
    return msgspec.structs.replace(
        state, replicas=target, isr=isr, leader=leader, adding_replicas=(), removing_replicas=()
    )


def list_reassignments(
    image: MetadataImage, partitions: Iterable[PartitionName] | None = None
) -> tuple[tuple[TopicIdPartition, PartitionState], ...]:
    """What is under way, for the partitions named or for all; the state says what is added and what goes."""
    return tuple(
        (TopicIdPartition(image.topics[name.topic].topic_id, name.topic, name.partition), state)
        for name in (_all_partitions(image) if partitions is None else partitions)
        if (state := image.partition(name.topic, name.partition)) is not None and state.is_reassigning
    )


def _decide(
    image: MetadataImage, elections: Elections, wanted: PartitionReassignment, *, resizing_allowed: bool
) -> PartitionOutcome:
    topic = image.topics.get(wanted.topic)
    if topic is None or wanted.partition not in topic.partitions:
        unknown = TopicIdPartition(NO_TOPIC_ID, wanted.topic, wanted.partition)
        return failed(unknown, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."))
    name = TopicIdPartition(topic.topic_id, topic.name, wanted.partition)
    state = elections.edits.current(name)
    try:
        if wanted.replicas is None:
            changed = _cancelled(elections, state)
        else:
            _check_target(image, state, wanted.replicas, resizing_allowed=resizing_allowed)
            changed = completed(elections, _begun(elections, state, wanted.replicas))
    except KafkaError as error:
        return failed(name, error, state)
    return succeeded(name, elections.edits.change(name, changed))


def _check_target(
    image: MetadataImage, state: PartitionState, target: tuple[NodeId, ...], *, resizing_allowed: bool
) -> None:
    if not target or len(set(target)) != len(target):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "An assignment has no replica, or the same one twice.")
    for node in target:
        if node not in image.brokers:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"An assignment names broker {node}, which is not registered."
            )
    if not resizing_allowed and len(target) != len(_settled_replicas(state)):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor would change, which was not allowed."
        )


def _begun(elections: Elections, state: PartitionState, target: tuple[NodeId, ...]) -> PartitionState:
    """On the way to the target. What an earlier reassignment was adding and this one does not want goes at once."""
    settled = _settled_replicas(state)
    removing = without(settled, target)
    return _restricted(
        elections,
        state,
        replicas=target + removing,
        adding=without(target, settled),
        removing=removing,
    )


def _cancelled(elections: Elections, state: PartitionState) -> PartitionState:
    if not state.is_reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No reassignment of the partition is under way.")
    return _restricted(elections, state, replicas=_settled_replicas(state), adding=(), removing=())


def _restricted(
    elections: Elections,
    state: PartitionState,
    *,
    replicas: tuple[NodeId, ...],
    adding: tuple[NodeId, ...],
    removing: tuple[NodeId, ...],
) -> PartitionState:
    """The state with these replicas; whoever is no replica any more leaves the in-sync set and the leadership."""
    isr = tuple(node for node in state.isr if node in replicas)
    if not isr:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "None of the replicas that would be left is in sync; data would be lost.",
        )
    moved = msgspec.structs.replace(
        state, replicas=replicas, isr=isr, adding_replicas=adding, removing_replicas=removing
    )
    if moved.leader in replicas or not moved.has_leader:
        return moved
    return msgspec.structs.replace(moved, leader=elections.candidate(moved, isr))


def _settled_replicas(state: PartitionState) -> tuple[NodeId, ...]:
    """The replicas without those that a reassignment is still adding."""
    return without(state.replicas, state.adding_replicas)


def _all_partitions(image: MetadataImage) -> Iterator[PartitionName]:
    for topic in image.topics.values():
        for index in topic.partitions:
            yield PartitionName(topic.name, index)
