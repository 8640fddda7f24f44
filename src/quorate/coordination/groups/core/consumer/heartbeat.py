"""ConsumerGroupHeartbeat: join, stay, reconcile and leave, one request for all of them (KIP-848).

First what the request says by itself, then which member it is from: who joins, who comes back, and who is fenced. What
is refused is raised as the error that the sender is to see. Then what it changes.
"""

from collections.abc import Collection

import msgspec

from quorate.coordination.groups.core.config import ConsumerGroupSettings
from quorate.coordination.groups.core.consumer.commands import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from quorate.coordination.groups.core.consumer.group import ConsumerGroup
from quorate.coordination.groups.core.consumer.group_update import GroupUpdate
from quorate.coordination.groups.core.consumer.records import ConsumerMember, CurrentAssignment
from quorate.coordination.groups.core.consumer.topics import NO_PARTITIONS, ClusterTopics, VisibleTopics
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import MemberId
from quorate.kernel.pattern import InvalidPattern, compile_pattern


def check_request(command: ConsumerGroupHeartbeat, assignors: Collection[str]) -> None:
    """Raises the error that the member is to see."""
    _check_names(command)
    if command.member_epoch < LEAVE_FOR_A_WHILE_EPOCH:
        raise _invalid(f"MemberEpoch is {command.member_epoch}, but must not be less than -2.")
    if command.member_epoch == LEAVE_FOR_A_WHILE_EPOCH and command.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    if command.member_epoch == JOIN_EPOCH:
        _check_joining(command)
    if command.server_assignor is not None and command.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {command.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(sorted(assignors))}.",
        )
    if command.pattern:
        _check_pattern(command.pattern)


def _check_names(command: ConsumerGroupHeartbeat) -> None:
    if not command.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    is_given_an_id = not command.chooses_member_id and command.member_epoch == JOIN_EPOCH
    if not command.member_id.strip() and not is_given_an_id:
        raise _invalid("MemberId can't be empty.")
    if command.instance_id is not None and not command.instance_id.strip():
        raise _invalid("InstanceId can't be empty.")
    if command.rack_id is not None and not command.rack_id.strip():
        raise _invalid("RackId can't be empty.")


def _check_joining(command: ConsumerGroupHeartbeat) -> None:
    if command.rebalance_timeout_ms is None:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if command.owned is None or command.owned:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if command.topics is None and command.pattern is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _check_pattern(pattern: str) -> None:
    try:
        compile_pattern(pattern)
    except InvalidPattern as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex `{pattern}` is not valid: {error}."
        ) from None


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def is_leaving(command: ConsumerGroupHeartbeat) -> bool:
    return command.member_epoch in (LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH)


def check_room(group: ConsumerGroup, member_id: MemberId, max_size: int) -> None:
    if len(group.members) >= max_size and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {max_size} members.",
        )


def check_member(group: ConsumerGroup, command: ConsumerGroupHeartbeat) -> None:
    """Whether the heartbeat is of a member as the coordinator knows it, or of one that may join."""
    if command.instance_id is None:
        if command.member_epoch != JOIN_EPOCH and command.member_id not in group.members:
            raise unknown_member(command.member_id)
    else:
        _check_static_member(group, command, command.instance_id)
    known = group.members.get(command.member_id)
    if known is not None and not _joins_again(known, command):
        _check_epoch(group.current(command.member_id), command)


def _check_static_member(group: ConsumerGroup, command: ConsumerGroupHeartbeat, instance_id: str) -> None:
    holder = group.static_member(instance_id)
    if holder is None:
        if command.member_epoch != JOIN_EPOCH:
            raise unknown_instance(instance_id)
    elif command.member_epoch != JOIN_EPOCH:
        check_instance(command.member_id, instance_id, holder)
    elif holder != command.member_id and not _may_be_replaced(group, holder):
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {command.member_id} with instance id {instance_id} cannot join the group because the "
            f"instance id is owned by {holder} member.",
        )


def _may_be_replaced(group: ConsumerGroup, holder: MemberId) -> bool:
    """Whether a static member has said that it is away. One that speaks the classic protocol cannot say so."""
    return _is_away(group, holder) or group.members[holder].classic is not None


def _joins_again(known: ConsumerMember, command: ConsumerGroupHeartbeat) -> bool:
    """Whether a known member starts anew under its own member id and, if it is static, its instance id (KAFKA-19233).

    It was fenced, was away, or has lost track: whatever epoch it had, it says that it owns nothing. Its partitions are
    still its own, so it is given them again.
    """
    return command.member_epoch == JOIN_EPOCH and known.instance_id in (None, command.instance_id)


def _is_away(group: ConsumerGroup, member_id: MemberId) -> bool:
    return group.current(member_id).member_epoch == LEAVE_FOR_A_WHILE_EPOCH


def check_instance(member_id: MemberId, instance_id: str, holder: MemberId) -> None:
    if member_id != holder:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {holder}.",
        )


def unknown_member(member_id: MemberId) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of the group.")


def unknown_instance(instance_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")


def _check_epoch(current: CurrentAssignment, command: ConsumerGroupHeartbeat) -> None:
    if command.member_epoch == current.member_epoch:
        return
    # The answer that told the member its new epoch may have been lost: then it owns nothing that it should not.
    is_repeated = current.previous_member_epoch == command.member_epoch < current.member_epoch
    if is_repeated and command.owned is not None and command.owned <= current.assigned:
        return
    comparison = "greater" if command.member_epoch > current.member_epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {comparison} member epoch ({command.member_epoch}) than the one known by the "
        f"group coordinator ({current.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def replace_static_member(update: GroupUpdate, holder: MemberId, member_id: MemberId, member_epoch: int) -> None:
    """The next process with the holder's instance id, or the holder when it is back, gets all that it had."""
    group = update.group
    member, target, current = group.members[holder], group.target(holder), group.current(holder)
    update.remove_member(holder)
    update.put_member(member_id, member)
    update.set_target(member_id, target)
    update.set_current(
        member_id,
        CurrentAssignment(
            member_epoch=member_epoch,
            previous_member_epoch=JOIN_EPOCH,
            state=current.state,
            assigned=current.assigned,
            pending_revocation=current.pending_revocation,
        ),
    )


def _updated_member(known: ConsumerMember | None, command: ConsumerGroupHeartbeat) -> ConsumerMember:
    """The member as the heartbeat describes it; what it leaves out stays as it was."""
    if known is None:
        known = ConsumerMember(client_id=command.client_id, client_host=command.client_host, rebalance_timeout_ms=-1)
    optional = ("instance_id", "rack_id", "rebalance_timeout_ms", "server_assignor", "topics")
    said = {field: value for field in optional if (value := getattr(command, field)) is not None}
    return msgspec.structs.replace(
        known,
        client_id=command.client_id,
        client_host=command.client_host,
        pattern=known.pattern if command.pattern is None else command.pattern or None,
        classic=None,
        **said,
    )


def stay(
    update: GroupUpdate,
    command: ConsumerGroupHeartbeat,
    topics: ClusterTopics,
    settings: ConsumerGroupSettings,
    now_ms: int,
) -> ConsumerGroupHeartbeatResult:
    """Bring the member up to date and take it one step towards its target; it was let in before."""
    group = update.group
    if command.matches is not None:
        topics = VisibleTopics(topics, command.matches)
    has_changed = _update_member(update, command)
    update.advance_epoch(topics, now_ms, has_changed=has_changed or group.epoch == 0)
    update.assign(topics, settings.assignors[0], now_ms)
    before = group.current(command.member_id)
    current = update.reconcile(command.member_id, command.owned)
    is_news = command.member_epoch == JOIN_EPOCH or command.is_complete or current.assigned != before.assigned
    return ConsumerGroupHeartbeatResult(
        member_id=command.member_id,
        member_epoch=current.member_epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        assignment=current.assigned if is_news else None,
    )


def _update_member(update: GroupUpdate, command: ConsumerGroupHeartbeat) -> bool:
    """Returns whether there is a member or a subscription that the target assignment does not know."""
    group, member_id = update.group, command.member_id
    if command.instance_id is not None:
        holder = group.static_member(command.instance_id)
        if holder is not None and (holder != member_id or _is_away(group, holder)):
            replace_static_member(update, holder, member_id, JOIN_EPOCH)
    known = group.members.get(member_id)
    member = _updated_member(known, command)
    update.put_member(member_id, member)
    return known is None or (known.topics, known.pattern) != (member.topics, member.pattern)


def leaving_member(group: ConsumerGroup, command: ConsumerGroupHeartbeat) -> MemberId:
    """Who leaves; raises the error that the sender is to see."""
    if command.instance_id is None:
        if command.member_id not in group.members:
            raise unknown_member(command.member_id)
        return command.member_id
    holder = group.static_member(command.instance_id)
    if holder is None:
        raise unknown_instance(command.instance_id)
    check_instance(command.member_id, command.instance_id, holder)
    return holder


def stays_a_member(command: ConsumerGroupHeartbeat) -> bool:
    return command.member_epoch == LEAVE_FOR_A_WHILE_EPOCH


def leave_for_a_while(update: GroupUpdate, member_id: MemberId) -> None:
    """The member's session goes on: its partitions are free if nobody has come with its instance id until it ends."""
    current = msgspec.structs.replace(
        update.group.current(member_id), member_epoch=LEAVE_FOR_A_WHILE_EPOCH, pending_revocation=NO_PARTITIONS
    )
    update.set_current(member_id, current)
