"""Which results a group client acts on for good, and so has to have from the true coordinator."""

import pytest

from quorate.coordination.groups.core.commands import (
    CommitOffsetsResult,
    FetchOffsetsResult,
    GroupHeartbeatResult,
    JoinGroupResult,
    LeaveGroupResult,
    Result,
)
from quorate.coordination.groups.core.consumer.commands import ConsumerGroupHeartbeatResult
from quorate.coordination.groups.core.refusal import binds
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import MemberId, PartitionIndex, TopicName, TopicPartition

_ONE = TopicPartition(TopicName("orders"), PartitionIndex(0))
_TWO = TopicPartition(TopicName("orders"), PartitionIndex(1))


@pytest.mark.parametrize(
    "result",
    [
        FetchOffsetsResult(),
        LeaveGroupResult(),
        GroupHeartbeatResult(error=ErrorCode.FENCED_INSTANCE_ID),
        GroupHeartbeatResult(error=ErrorCode.UNKNOWN_MEMBER_ID),
        ConsumerGroupHeartbeatResult(error=ErrorCode.FENCED_MEMBER_EPOCH),
        CommitOffsetsResult(errors={_ONE: ErrorCode.NOT_COORDINATOR, _TWO: ErrorCode.ILLEGAL_GENERATION}),
    ],
)
def test_what_a_client_acts_on_for_good(result: Result) -> None:
    assert binds(result)


@pytest.mark.parametrize(
    "result",
    [
        GroupHeartbeatResult(),
        GroupHeartbeatResult(error=ErrorCode.REBALANCE_IN_PROGRESS),
        ConsumerGroupHeartbeatResult(),
        FetchOffsetsResult(error=ErrorCode.UNSTABLE_OFFSET_COMMIT),
        FetchOffsetsResult(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        JoinGroupResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=MemberId("m")),
        CommitOffsetsResult(errors={_ONE: ErrorCode.NOT_COORDINATOR, _TWO: ErrorCode.NOT_COORDINATOR}),
    ],
)
def test_what_only_makes_it_come_again(result: Result) -> None:
    assert not binds(result)
