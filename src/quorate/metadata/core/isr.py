"""Deciding what partition leaders ask for: other in-sync sets (KIP-497, KIP-903), or to lead no more.

A proposal counts only on the very state it was made on: the leader's broker epoch, the leader epoch and the partition
epoch must be the current ones, and every member must be a replica that runs under the broker epoch it fetched with.
"""

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_NODE, NodeId, TopicName
from quorate.metadata.core.brokers import checked_broker
from quorate.metadata.core.commands import AlterIsr, IsrChange, IsrMember, ResignLeadership
from quorate.metadata.core.decisions import Decision, PartitionOutcome, failed, succeeded
from quorate.metadata.core.elections import ElectionRules, Elections
from quorate.metadata.core.image import MetadataImage, PartitionState, TopicIdPartition
from quorate.metadata.core.image_parts import without
from quorate.metadata.core.reassignment import completed


def decide_for_leader(image: MetadataImage, rules: ElectionRules, command: AlterIsr | ResignLeadership) -> Decision:
    """What the leader of partitions asks for."""
    checked_broker(image, command.node_id, command.broker_epoch)
    if isinstance(command, ResignLeadership):
        return _decide_resignation(image, rules, command)
    return _decide_isr_changes(image, rules, command)


def _decide_resignation(image: MetadataImage, rules: ElectionRules, command: ResignLeadership) -> Decision:
    """What another one leads by now, or has been deleted, is passed over."""
    elections = Elections(image, rules)
    for led in command.partitions:
        topic = image.topic_by_id(led.topic_id)
        state = None if topic is None else topic.partitions.get(led.partition)
        if topic is None or state is None:
            continue
        if state.leader == command.node_id and state.leader_epoch == led.leader_epoch:
            elections.resign(TopicIdPartition(topic.topic_id, topic.name, led.partition))
    return Decision(records=elections.edits.records())


def _decide_isr_changes(image: MetadataImage, rules: ElectionRules, command: AlterIsr) -> Decision:
    elections = Elections(image, rules)
    outcomes = tuple(_decide(image, elections, command.node_id, change) for change in command.changes)
    return Decision(records=elections.edits.records(), partitions=outcomes)


def _decide(image: MetadataImage, elections: Elections, asker: NodeId, change: IsrChange) -> PartitionOutcome:
    topic = image.topic_by_id(change.topic_id)
    if topic is None:
        unknown = TopicIdPartition(change.topic_id, TopicName(""), change.partition)
        return failed(unknown, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID))
    name = TopicIdPartition(change.topic_id, topic.name, change.partition)
    if change.partition not in topic.partitions:
        return failed(name, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    state = elections.edits.current(name)
    try:
        _check_epochs(state, asker, change)
        _check_members(image, state, change.new_isr)
    except KafkaError as error:
        return failed(name, error, state)
    proposed = msgspec.structs.replace(state, isr=tuple(member.node_id for member in change.new_isr))
    # A proposal that changes nothing is committed too: its leader wants to rule out an earlier one without an answer.
    settled = _handed_over(image, elections, completed(elections, proposed))
    accepted = elections.edits.change(name, settled, even_if_same=True)
    if accepted.leader != asker:
        return failed(name, KafkaError(ErrorCode.NEW_LEADER_ELECTED), accepted)
    return succeeded(name, accepted)


def _check_epochs(state: PartitionState, asker: NodeId, change: IsrChange) -> None:
    if change.leader_epoch > state.leader_epoch or (
        change.leader_epoch == state.leader_epoch and change.partition_epoch > state.partition_epoch
    ):
        # The asker has seen records that this controller has not: it was deposed and does not know yet.
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if change.leader_epoch < state.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if state.leader != asker:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Broker {asker} does not lead the partition.")
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
