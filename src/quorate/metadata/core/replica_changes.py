"""Deciding the replicas of a partition (reassignments, KIP-455) and its in-sync set (KIP-497, KIP-903).

While a reassignment is under way the replicas are the union of the target and those to be removed; it is complete when
every target is in sync, which a change of the in-sync set decides. No replica is given up before that.

A leader's proposal of another in-sync set counts only for the state that it was made on: the leader's broker epoch, the
leader epoch and the partition epoch must be the current ones, and every member must be a replica that runs under the
broker epoch it fetched with. A leader may also ask to lead no more.
"""

from collections.abc import Iterable, Iterator

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_NODE, NO_TOPIC_ID, NodeId, TopicName
from quorate.metadata.core.brokers import checked_broker
from quorate.metadata.core.commands import (
    AlterIsr,
    AlterPartitionReassignments,
    IsrChange,
    IsrMember,
    PartitionName,
    PartitionReassignment,
    ResignLeadership,
)
from quorate.metadata.core.decisions import (
    Answer,
    CarriedOut,
    Decision,
    PartitionOutcome,
    PartitionOutcomes,
    done,
    failed,
    succeeded,
)
from quorate.metadata.core.elections import ElectionRules, Elections
from quorate.metadata.core.image import MetadataImage, PartitionState, TopicIdPartition
from quorate.metadata.core.image_parts import without


def decide_for_leader(
    image: MetadataImage, rules: ElectionRules, command: AlterIsr | ResignLeadership
) -> Decision[Answer]:
    """A request of a partition leader: changes of in-sync sets, or to give up leaderships."""
    checked_broker(image, command.node_id, command.broker_epoch)
    if isinstance(command, ResignLeadership):
        return _decide_resignation(image, rules, command)
    return _decide_isr_changes(image, rules, command)


def _decide_resignation(image: MetadataImage, rules: ElectionRules, command: ResignLeadership) -> Decision[CarriedOut]:
    """Partitions that have another leader by now, or were deleted, are passed over."""
    elections = Elections(image, rules)
    for led in command.partitions:
        topic = image.topic_by_id(led.topic_id)
        state = None if topic is None else topic.partitions.get(led.partition)
        if topic is None or state is None:
            continue
        if state.leader == command.node_id and state.leader_epoch == led.leader_epoch:
            elections.resign(TopicIdPartition(topic.topic_id, topic.name, led.partition))
    return done(*elections.edits.records())


def _decide_isr_changes(image: MetadataImage, rules: ElectionRules, command: AlterIsr) -> Decision[PartitionOutcomes]:
    elections = Elections(image, rules)
    outcomes = tuple(_decide_isr_change(image, elections, command.node_id, change) for change in command.changes)
    return Decision(records=elections.edits.records(), answer=PartitionOutcomes(outcomes))


def _decide_isr_change(
    image: MetadataImage, elections: Elections, proposer: NodeId, change: IsrChange
) -> PartitionOutcome:
    topic = image.topic_by_id(change.topic_id)
    if topic is None:
        unknown = TopicIdPartition(change.topic_id, TopicName(""), change.partition)
        return failed(unknown, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID))
    name = TopicIdPartition(change.topic_id, topic.name, change.partition)
    if change.partition not in topic.partitions:
        return failed(name, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    state = elections.edits.current(name)
    try:
        _check_epochs(state, proposer, change)
        _check_members(image, state, change.new_isr)
    except KafkaError as error:
        return failed(name, error, state)
    proposed = msgspec.structs.replace(state, isr=tuple(member.node_id for member in change.new_isr))
    # A proposal that changes nothing is committed too: its leader wants to rule out an earlier one without an answer.
    settled = _handed_over(image, elections, completed(elections, proposed))
    accepted = elections.edits.change(name, settled, even_if_same=True)
    if accepted.leader != proposer:
        return failed(name, KafkaError(ErrorCode.NEW_LEADER_ELECTED), accepted)
    return succeeded(name, accepted)


def _check_epochs(state: PartitionState, proposer: NodeId, change: IsrChange) -> None:
    if change.leader_epoch > state.leader_epoch or (
        change.leader_epoch == state.leader_epoch and change.partition_epoch > state.partition_epoch
    ):
        # The proposer has seen records that this controller has not: the controller was deposed and does not know yet.
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if change.leader_epoch < state.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if state.leader != proposer:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Broker {proposer} does not lead the partition.")
    if change.partition_epoch < state.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)


def _check_members(image: MetadataImage, state: PartitionState, members: tuple[IsrMember, ...]) -> None:
    nodes = [member.node_id for member in members]
    if len(set(nodes)) != len(nodes) or not set(nodes) <= set(state.replicas) or state.leader not in nodes:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"The in-sync set {nodes} must hold the leader and replicas of the partition."
        )
    for member in members:
        broker = image.brokers.get(member.node_id)
        # A leader that is shutting down may shrink the set to itself; nobody else joins or stays while it stops.
        may_belong = broker is not None and (broker.is_live if broker.node_id == state.leader else broker.is_active)
        joins_full = broker is not None and not broker.has_room and broker.node_id not in state.isr
        if broker is None or not may_belong or joins_full or broker.broker_epoch != member.broker_epoch:
            raise KafkaError(
                ErrorCode.INELIGIBLE_REPLICA,
                f"Broker {member.node_id} is fenced, shutting down, without room on its disk, or has restarted since "
                f"it fetched.",
            )


def _handed_over(image: MetadataImage, elections: Elections, state: PartitionState) -> PartitionState:
    """A leader that is shutting down, or whose disk is full, goes as soon as another replica is in sync."""
    isr = without(state.isr, (state.leader,))
    if image.takes_records(state.leader) or not isr:
        return state
    leader = elections.candidate(state, isr)
    if leader == NO_NODE or (image.is_active(state.leader) and not image.has_room(leader)):
        return state
    return msgspec.structs.replace(state, isr=isr, leader=leader)


def decide_reassignments(
    image: MetadataImage, rules: ElectionRules, command: AlterPartitionReassignments
) -> Decision[PartitionOutcomes]:
    elections = Elections(image, rules)
    outcomes = tuple(
        _decide_reassignment(image, elections, wanted, resizing_allowed=command.allow_replication_factor_change)
        for wanted in command.reassignments
    )
    return Decision(records=elections.edits.records(), answer=PartitionOutcomes(outcomes))


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
    """The reassignments under way, of the named partitions or of all; the state has the added and removed replicas."""
    return tuple(
        (TopicIdPartition(image.topics[name.topic].topic_id, name.topic, name.partition), state)
        for name in (_all_partitions(image) if partitions is None else partitions)
        if (state := image.partition(name.topic, name.partition)) is not None and state.is_reassigning
    )


def _decide_reassignment(
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
    """The state on the way to the target. Replicas that only an earlier reassignment was adding are removed at once."""
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
    """The state with these replicas; the others leave the in-sync set and the leadership."""
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
