"""Members of a consumer group that still speak the classic protocol: JoinGroup, SyncGroup and Heartbeat.

Such a member joins to learn its next epoch, which is its generation, and syncs to get its assignment. It is told to
join again whenever it could take a step towards its target. Raises the error that the member is to see.
"""

from uuid import UUID

from quorate.coordination.groups.core.commands import NO_MEMBER_ID, Heartbeat, JoinGroup, LeavingMember, SyncGroup
from quorate.coordination.groups.core.config import GroupConfig
from quorate.coordination.groups.core.consumer.commands import JOIN_EPOCH
from quorate.coordination.groups.core.consumer.embedded_protocol import (
    MalformedProtocol,
    Subscription,
    read_subscription,
)
from quorate.coordination.groups.core.consumer.group import ConsumerGroup
from quorate.coordination.groups.core.consumer.group_update import GroupUpdate
from quorate.coordination.groups.core.consumer.membership import (
    check_instance,
    check_room,
    replace_static_member,
    unknown_instance,
    unknown_member,
)
from quorate.coordination.groups.core.consumer.records import (
    ClassicSupport,
    ConsumerMember,
    CurrentAssignment,
    MemberState,
)
from quorate.coordination.groups.core.consumer.topics import ClusterTopics
from quorate.coordination.groups.core.subscription import CONSUMER_PROTOCOL_TYPE
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import MemberId


def check_join(group: ConsumerGroup, command: JoinGroup, config: GroupConfig, topics: ClusterTopics) -> Subscription:
    if not config.min_session_timeout_ms <= command.session_timeout_ms <= config.max_session_timeout_ms:
        raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
    if not _speaks_with(group, command):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    holder = None if command.group_instance_id is None else group.static_member(command.group_instance_id)
    check_room(group, holder or command.member_id, config.consumer.max_group_size)
    if command.member_id != NO_MEMBER_ID and command.group_instance_id is not None:
        if holder is None:
            raise unknown_instance(command.group_instance_id)
        check_instance(command.member_id, command.group_instance_id, holder)
    try:
        return read_subscription(command.protocols[0].metadata, topics)
    except MalformedProtocol as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error


def _speaks_with(group: ConsumerGroup, command: JoinGroup) -> bool:
    """Whether the group could become classic again with this member in it."""
    names = {protocol.name for protocol in command.protocols}
    for member_id, member in group.members.items():
        if member.classic is not None and member_id != command.member_id:
            names &= {protocol.name for protocol in member.classic.protocols}
    return command.protocol_type == CONSUMER_PROTOCOL_TYPE and bool(names)


def joining_id(command: JoinGroup, new_id: UUID) -> MemberId:
    return command.member_id or command.own_member_id(new_id)


def join(
    update: GroupUpdate,
    member_id: MemberId,
    command: JoinGroup,
    subscription: Subscription,
) -> bool:
    """Returns whether there is a member or a subscription that the target assignment does not know."""
    group = update.group
    if command.group_instance_id is not None:
        holder = group.static_member(command.group_instance_id)
        if holder is not None and holder != member_id:
            replace_static_member(update, holder, member_id, JOIN_EPOCH)
    known = group.members.get(member_id)
    member = ConsumerMember(
        instance_id=command.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        topics=subscription.topics,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        classic=ClassicSupport(session_timeout_ms=command.session_timeout_ms, protocols=command.protocols),
    )
    update.put_member(member_id, member)
    return known is None or (known.topics, known.pattern) != (member.topics, member.pattern)


def check_classic_member(
    group: ConsumerGroup, command: SyncGroup | Heartbeat
) -> tuple[ClassicSupport, CurrentAssignment]:
    """The member that asks, in the generation that it must be in."""
    if command.group_instance_id is not None:
        holder = group.static_member(command.group_instance_id)
        if holder is None:
            raise unknown_instance(command.group_instance_id)
        check_instance(command.member_id, command.group_instance_id, holder)
    member = group.members.get(command.member_id)
    if member is None or member.classic is None:
        raise unknown_member(command.member_id)
    current = group.current(command.member_id)
    if command.generation != current.member_epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member.classic, current


def check_sync(classic: ClassicSupport, command: SyncGroup) -> None:
    names = {protocol.name for protocol in classic.protocols}
    if command.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or not names | {None} >= {command.protocol_name}:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def must_join_before_sync(group: ConsumerGroup, current: CurrentAssignment) -> bool:
    """A member that has partitions to revoke finishes that first, and joins again by itself."""
    return group.epoch > current.member_epoch and current.state is not MemberState.UNREVOKED_PARTITIONS


def must_join_again(group: ConsumerGroup, member_id: MemberId) -> bool:
    """Whether there is a step that the member can take: to a new epoch, to revoke, or to get what others released."""
    current = group.current(member_id)
    return (
        current.member_epoch < group.epoch
        or current.state is MemberState.UNREVOKED_PARTITIONS
        or (current.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member_id))
    )


def leaving_member(group: ConsumerGroup, leaving: LeavingMember) -> MemberId:
    """Who leaves by LeaveGroup; a tool that removes an instance need not know its member id."""
    if leaving.group_instance_id is not None:
        holder = group.static_member(leaving.group_instance_id)
        if holder is None:
            raise unknown_instance(leaving.group_instance_id)
        if leaving.member_id != NO_MEMBER_ID:
            check_instance(leaving.member_id, leaving.group_instance_id, holder)
    else:
        holder = leaving.member_id
    member = group.members.get(holder)
    if member is None or member.classic is None:  # Members with the consumer protocol leave by heartbeat.
        raise unknown_member(holder)
    return holder
