"""Which heartbeats are refused before any group is looked at."""

from collections.abc import Collection

from quorate.coordination.groups.core.consumer.commands import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    ConsumerGroupHeartbeat,
)
from quorate.kernel.errors import ErrorCode, KafkaError
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
