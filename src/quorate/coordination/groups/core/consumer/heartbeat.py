"""ConsumerGroupHeartbeat: join, stay, reconcile and leave, one request for all of them (KIP-848)."""

import msgspec

from quorate.coordination.groups.core.consumer.commands import (
    JOIN_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from quorate.coordination.groups.core.consumer.group import ConsumerGroup
from quorate.coordination.groups.core.consumer.group_update import GroupUpdate
from quorate.coordination.groups.core.consumer.membership import (
    check_instance,
    is_away,
    replace_static_member,
    unknown_instance,
    unknown_member,
    updated_member,
)
from quorate.coordination.groups.core.consumer.partitions import NO_PARTITIONS
from quorate.coordination.groups.core.consumer.settings import ConsumerGroupSettings
from quorate.coordination.groups.core.consumer.topics import ClusterTopics
from quorate.kernel.ids import MemberId


def stay(
    update: GroupUpdate,
    command: ConsumerGroupHeartbeat,
    topics: ClusterTopics,
    settings: ConsumerGroupSettings,
    now_ms: int,
) -> ConsumerGroupHeartbeatResult:
    """Bring the member up to date and take it one step towards its target; it was let in before."""
    group = update.group
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
        if holder is not None and (holder != member_id or is_away(group, holder)):
            replace_static_member(update, holder, member_id, JOIN_EPOCH)
    known = group.members.get(member_id)
    member = updated_member(known, command)
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
