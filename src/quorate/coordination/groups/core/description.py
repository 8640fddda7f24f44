"""What DescribeGroups and ListGroups show of a group."""

from quorate.coordination.groups.core.commands import (
    DescribedMember,
    DescribeGroup,
    DescribeGroupResult,
    ListedGroup,
    ListGroups,
    ListGroupsResult,
)
from quorate.coordination.groups.core.consumer.commands import (
    DescribeConsumerGroup,
    DescribeConsumerGroupResult,
    DescribedConsumerMember,
)
from quorate.coordination.groups.core.consumer.group import ConsumerGroup
from quorate.coordination.groups.core.consumer.settings import ConsumerGroupSettings
from quorate.coordination.groups.core.group_book import GroupBook
from quorate.coordination.groups.core.group_state import GroupState
from quorate.kernel.errors import ErrorCode, clip
from quorate.kernel.ids import GroupId, MemberId

CLASSIC = "classic"
CONSUMER = "consumer"


def describe(book: GroupBook, command: DescribeGroup) -> DescribeGroupResult:
    if not book.exists(command.group_id) or command.group_id in book.consumer:
        return DescribeGroupResult(error=ErrorCode.GROUP_ID_NOT_FOUND, group_id=command.group_id)
    group = book.live.get(command.group_id)
    if group is None:  # Offsets were committed without membership.
        return DescribeGroupResult(group_id=command.group_id, state=GroupState.EMPTY)
    # Outside of Stable there is no assignment in force, and no protocol that all members have agreed on.
    is_stable = group.state is GroupState.STABLE
    return DescribeGroupResult(
        group_id=group.group_id,
        state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if is_stable else "",
        members=tuple(
            DescribedMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata_for(group.protocol_name) if is_stable else b"",
                assignment=member.assignment if is_stable else b"",
            )
            for member in group.roster
        ),
    )


def describe_consumer_group(
    book: GroupBook, command: DescribeConsumerGroup, settings: ConsumerGroupSettings
) -> DescribeConsumerGroupResult:
    """What is durable of the group: who acts on an answer must not see what may yet be lost."""
    group = book.state.consumer_group(command.group_id)
    if group is None:
        kind = "is not a consumer group" if book.exists(command.group_id) else "not found"
        message = f"Group {clip(command.group_id)} {kind}."
        return DescribeConsumerGroupResult(
            error=ErrorCode.GROUP_ID_NOT_FOUND, message=message, group_id=command.group_id
        )
    return DescribeConsumerGroupResult(
        group_id=group.group_id,
        state=group.state,
        epoch=group.epoch,
        target_epoch=group.target_epoch,
        assignor=group.preferred_assignor(settings.assignors[0]),
        members=tuple(_described_member(group, member_id) for member_id in sorted(group.members)),
    )


def _described_member(group: ConsumerGroup, member_id: MemberId) -> DescribedConsumerMember:
    member, current = group.members[member_id], group.current(member_id)
    return DescribedConsumerMember(
        member_id=member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=current.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=member.topics,
        pattern=member.pattern,
        assigned=current.assigned,
        target=group.target(member_id),
        is_classic=member.classic is not None,
    )


def listed(book: GroupBook, command: ListGroups) -> ListGroupsResult:
    found = (_listed_one(book, group_id) for group_id in book.group_ids())
    return ListGroupsResult(
        groups=tuple(
            group
            for group in found
            if (not command.states or group.state.lower() in command.states)
            and (not command.types or group.group_type in command.types)
        )
    )


def _listed_one(book: GroupBook, group_id: GroupId) -> ListedGroup:
    consumer = book.consumer.get(group_id)
    if consumer is not None:
        return ListedGroup(group_id=group_id, protocol_type=CONSUMER, state=consumer.state, group_type=CONSUMER)
    group = book.live.get(group_id)
    if group is None:
        return ListedGroup(group_id=group_id, protocol_type="", state=GroupState.EMPTY)
    return ListedGroup(group_id=group_id, protocol_type=group.protocol_type or "", state=group.state)
