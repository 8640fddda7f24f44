"""How each command is refused, and which results a group client acts on for good."""

from typing import assert_never

from quorate.coordination.core.errors import RETRIABLE_FROM_COORDINATORS, coordinator_error
from quorate.coordination.groups.core.commands import (
    Command,
    CommitOffsets,
    CommitOffsetsResult,
    DeleteGroup,
    DeleteGroupResult,
    DeleteOffsets,
    DeleteOffsetsResult,
    DescribeGroup,
    DescribeGroupResult,
    FetchOffsets,
    FetchOffsetsResult,
    ForgetTopics,
    ForgetTopicsResult,
    GroupHeartbeat,
    GroupHeartbeatResult,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    ListGroups,
    ListGroupsResult,
    Result,
    SettlePendingOffsets,
    SettlePendingOffsetsResult,
    SyncGroup,
    SyncGroupResult,
)
from quorate.coordination.groups.core.consumer.commands import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    DescribeConsumerGroup,
    DescribeConsumerGroupResult,
)
from quorate.kernel.errors import ErrorCode

_RETRIABLE = RETRIABLE_FROM_COORDINATORS | {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}


def binds(result: Result) -> bool:
    """Whether a client acts on the result for good. An answered heartbeat changes nothing for a member."""
    match result:
        case GroupHeartbeatResult(error=ErrorCode.NONE) | ConsumerGroupHeartbeatResult(error=ErrorCode.NONE):
            return False
        case CommitOffsetsResult(errors=errors):
            return not _RETRIABLE.issuperset(errors.values())
        case _:
            return result.error not in _RETRIABLE


def refusal(command: Command, error: ErrorCode) -> Result:  # noqa: C901, PLR0912 - one flat case for each command
    match command:
        case JoinGroup():
            return JoinGroupResult(error=error, member_id=command.member_id)
        case SyncGroup():
            return SyncGroupResult(error=error)
        case GroupHeartbeat():
            return GroupHeartbeatResult(error=error)
        case LeaveGroup():
            return LeaveGroupResult(error=error)
        case CommitOffsets():
            return CommitOffsetsResult(errors={offset.topic_partition: error for offset in command.offsets})
        case FetchOffsets():
            return FetchOffsetsResult(error=error)
        case DeleteOffsets():
            return DeleteOffsetsResult(error=error)
        case DescribeGroup():
            return DescribeGroupResult(error=error, group_id=command.group_id)
        case ListGroups():
            return ListGroupsResult(error=error)
        case DeleteGroup():
            return DeleteGroupResult(error=error)
        case ForgetTopics():
            return ForgetTopicsResult(error=error)
        case SettlePendingOffsets():
            return SettlePendingOffsetsResult(error=error)
        case ConsumerGroupHeartbeat():
            return ConsumerGroupHeartbeatResult(error=error)
        case DescribeConsumerGroup():
            return DescribeConsumerGroupResult(error=error, group_id=command.group_id)
        case _:
            assert_never(command)


def refusal_while_loading(command: Command) -> Result:
    match command:
        case GroupHeartbeat():
            # The member may well be known once the log is read: it must not leave because of a restart.
            return GroupHeartbeatResult()
        case SyncGroup():
            # A rebalance that was under way is lost. Old clients do not expect "loading" here, but do rejoin on this.
            return SyncGroupResult(error=ErrorCode.REBALANCE_IN_PROGRESS)
        case _:
            return refusal(command, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def refusal_after_append(command: Command, append_error: ErrorCode) -> Result:
    too_large = append_error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
    if too_large and isinstance(command, CommitOffsets):
        return refusal(command, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    return refusal(command, coordinator_error(append_error))
