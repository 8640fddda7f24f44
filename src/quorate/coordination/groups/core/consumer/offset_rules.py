"""Who may commit and fetch offsets of a consumer group."""

from quorate.coordination.groups.core.commands import NO_MEMBER_ID, CommitOffsets, FetchOffsets
from quorate.coordination.groups.core.consumer.group import ConsumerGroup
from quorate.kernel.errors import ErrorCode


def commit_error(group: ConsumerGroup, command: CommitOffsets) -> ErrorCode:
    if command.generation < 0 and not group.members:
        return ErrorCode.NONE  # A tool may set the offsets of a group that nobody is a member of.
    instance_id = command.group_instance_id
    holder = None if instance_id is None else group.static_member(instance_id)
    if holder is not None and holder != command.member_id:
        return ErrorCode.FENCED_INSTANCE_ID
    member = group.members.get(command.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_classic = member.classic is not None
    if not is_classic and not command.supports_member_epochs:
        return ErrorCode.UNSUPPORTED_VERSION
    if command.generation == group.current(command.member_id).member_epoch:
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH


def fetch_error(group: ConsumerGroup, command: FetchOffsets) -> ErrorCode:
    if command.member_id in (None, NO_MEMBER_ID) and command.member_epoch < 0:
        return ErrorCode.NONE  # From a tool, or from a client that does not say who it is.
    member = None if command.member_id is None else group.members.get(command.member_id)
    if member is None or command.member_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.classic is not None and command.member_epoch < 0:
        return ErrorCode.NONE
    is_current = command.member_epoch == group.current(command.member_id).member_epoch
    return ErrorCode.NONE if is_current else ErrorCode.STALE_MEMBER_EPOCH
