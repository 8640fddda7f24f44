"""Groups with members change their protocol without stopping: classic to consumer and back (KIP-848).

A classic group becomes a consumer group when a member joins with the consumer protocol; its classic members stay, and
the coordinator assigns to them too. When the last member with the consumer protocol is gone it becomes classic again.
"""

from quorate.coordination.core.effects import CancelTimer
from quorate.coordination.groups.core.classic_group import ClassicGroup
from quorate.coordination.groups.core.classic_protocol import GroupState
from quorate.coordination.groups.core.config import GroupConfig
from quorate.coordination.groups.core.consumer.embedded_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    MalformedProtocol,
    read_assignment,
    read_subscription,
    write_assignment,
)
from quorate.coordination.groups.core.consumer.group import ConsumerGroup
from quorate.coordination.groups.core.consumer.group_update import GroupUpdate
from quorate.coordination.groups.core.consumer.records import ClassicSupport, ConsumerMember, CurrentAssignment
from quorate.coordination.groups.core.consumer.topics import ClusterTopics, metadata_hash
from quorate.coordination.groups.core.effects import Effect, RebalanceTimer, SessionTimer
from quorate.coordination.groups.core.members import ClassicMember
from quorate.coordination.groups.core.records import GroupRecord, group_record
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import GroupId, MemberId


def upgrade(classic: ClassicGroup, topics: ClusterTopics, now_ms: int) -> GroupUpdate:
    """The consumer group that the classic group becomes; the classic group itself is left as it is."""
    config = classic.config.consumer
    uses_embedded_protocol = classic.protocol_type == CONSUMER_PROTOCOL_TYPE
    if not config.migration_policy.allows_upgrade or not uses_embedded_protocol:
        raise not_a_consumer_group(classic.group_id)
    update = GroupUpdate(ConsumerGroup(classic.group_id), [group_record(classic.group_id, None)])
    try:
        for member in classic.roster:
            _upgrade_member(update, classic, member, topics)
    except MalformedProtocol as error:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {classic.group_id} cannot become a consumer group: {error}."
        ) from error
    update.set_epoch(classic.generation, metadata_hash(topics, update.group.subscribed_topics()))
    update.set_target_epoch(classic.generation, now_ms)
    return update


def _upgrade_member(update: GroupUpdate, classic: ClassicGroup, member: ClassicMember, topics: ClusterTopics) -> None:
    # Before the first generation there is no protocol that all have agreed on; each member's first one has the topics.
    metadata = member.metadata_for(classic.protocol_name) or member.protocols[0].metadata
    subscription = read_subscription(metadata, topics)
    assigned = read_assignment(member.assignment, topics)
    update.put_member(
        member.member_id,
        ConsumerMember(
            instance_id=member.group_instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            topics=subscription.topics,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicSupport(session_timeout_ms=member.session_timeout_ms, protocols=member.protocols),
        ),
    )
    update.set_target(member.member_id, assigned)
    update.set_current(
        member.member_id,
        CurrentAssignment(member_epoch=classic.generation, previous_member_epoch=classic.generation, assigned=assigned),
    )


def not_a_consumer_group(group_id: GroupId) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")


def retire(classic: ClassicGroup, error: ErrorCode) -> list[Effect]:
    """End the live classic group: those who wait are told to try again, and its timers stop."""
    effects: list[Effect] = [CancelTimer(key=RebalanceTimer(group_id=classic.group_id))]
    effects += [
        CancelTimer(key=SessionTimer(group_id=classic.group_id, member_id=member_id))
        for member_id in classic.pending_members
    ]
    for member in classic.roster:
        effects += classic.answer_waiting(member, error)
        effects.append(CancelTimer(key=SessionTimer(group_id=classic.group_id, member_id=member.member_id)))
    return effects


def may_downgrade(group: ConsumerGroup, without: set[MemberId], config: GroupConfig) -> bool:
    """Whether only classic members are left once these are gone."""
    staying = [member for member_id, member in group.members.items() if member_id not in without]
    return (
        bool(staying)
        and all(member.classic is not None for member in staying)
        and config.consumer.migration_policy.allows_downgrade
        and len(staying) <= config.max_group_size
    )


def downgrade(
    group: ConsumerGroup, config: GroupConfig, topics: ClusterTopics, now_ms: int
) -> tuple[ClassicGroup, GroupRecord]:
    """The classic group that a consumer group of classic members becomes, and its record."""
    classic = ClassicGroup(group.group_id, config)
    classic.generation, classic.protocol_type = group.epoch, CONSUMER_PROTOCOL_TYPE
    for member_id, member in sorted(group.members.items()):
        assert member.classic is not None
        assigned = group.current(member_id).assigned
        classic.roster.add(
            ClassicMember(
                member_id=member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                session_timeout_ms=member.classic.session_timeout_ms,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                protocols=member.classic.protocols,
                assignment=write_assignment(assigned, member.classic.protocols, topics),
            )
        )
    classic.state, classic.state_timestamp_ms = GroupState.STABLE, now_ms
    classic.protocol_name = classic.roster.select_protocol()
    assignments = {member.member_id: member.assignment for member in classic.roster}
    return classic, group_record(group.group_id, classic.to_stored(assignments, now_ms))
