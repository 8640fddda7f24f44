"""Every way in which the oracles are known to differ from us, each with its reason.

A test takes nothing on trust here: what is listed as missing must be missing, and a value that is listed as refused or
changed must still be.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.api_versions import ApiVersionsResponse
from quorate.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from quorate.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from quorate.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from quorate.protocol.schema import VersionedMessage


class Narrower(NamedTuple):
    """Values of one kind of field that the wire can carry and the oracle cannot."""

    oracle: str
    kind: str
    reason: str
    replace: Callable[[Any], Any]
    """Any value to one that the oracle can carry."""
    example: VersionedMessage
    """A message that the oracle refuses or changes for this reason."""
    example_version: int


_YEAR_2100_MS = 4_102_444_800_000
_LARGEST_DURATION_MS = 2**53 // 1000

NARROWER = [
    Narrower(
        oracle="kio",
        kind="error_code",
        reason="error codes are an enumeration: one that kio does not list cannot be read",
        replace=lambda value: value if value in set(ErrorCode) and value <= 133 else ErrorCode.NOT_LEADER_OR_FOLLOWER,
        example=MetadataResponse(topics=[MetadataResponseTopic(error_code=30_000)]),
        example_version=0,
    ),
    Narrower(
        oracle="kio",
        kind="timedelta_i64",
        reason="durations are timedelta by way of a float: long ones lose milliseconds or are refused",
        replace=lambda value: max(-_LARGEST_DURATION_MS, min(_LARGEST_DURATION_MS, value)),
        example=CreateDelegationTokenRequest(max_lifetime_ms=2**63 - 1),
        example_version=1,
    ),
    Narrower(
        oracle="kio",
        kind="datetime_i64",
        reason="times are datetime by way of a float: negative ones are refused, far ones lose milliseconds",
        replace=lambda value: abs(value) % _YEAR_2100_MS,
        example=CreateDelegationTokenResponse(issue_timestamp_ms=-1),
        example_version=1,
    ),
    Narrower(
        oracle="kio",
        kind="nullable datetime_i64",
        reason="as for times that cannot be null, but that -1 stands for null",
        replace=lambda value: value if value == -1 else abs(value) % _YEAR_2100_MS,
        example=ProduceResponse(
            responses=[TopicProduceResponse(partition_responses=[PartitionProduceResponse(log_append_time_ms=-2)])]
        ),
        example_version=3,
    ),
    Narrower(
        oracle="kafka-python",
        kind="ApiVersionsResponse.error_code",
        reason="with an error the answer is read as version 0, whatever was asked for",
        replace=lambda value: 0,
        example=ApiVersionsResponse(error_code=35, throttle_time_ms=7),
        example_version=1,
    ),
]

# Message name without Request or Response, and the versions that the oracle lacks.
MISSING: dict[str, dict[str, range]] = {
    "kio": {
        # Removed in Kafka 4.0, which kio follows; we keep them to be able to refuse them.
        "Produce": range(3),
    },
    "kafka-python": {
        # Not offered by its clients.
        "AddRaftVoter": range(2),
        "AlterShareGroupOffsets": range(1),
        "ConsumerGroupDescribe": range(2),
        "ConsumerGroupHeartbeat": range(2),
        "CreateDelegationToken": range(1, 4),
        "DeleteShareGroupOffsets": range(1),
        "DeleteShareGroupState": range(1),
        "DescribeDelegationToken": range(1, 4),
        "DescribeShareGroupOffsets": range(2),
        "ExpireDelegationToken": range(1, 3),
        "GetTelemetrySubscriptions": range(1),
        "InitializeShareGroupState": range(1),
        "PushTelemetry": range(1),
        "ReadShareGroupState": range(1),
        "ReadShareGroupStateSummary": range(2),
        "RemoveRaftVoter": range(1),
        "RenewDelegationToken": range(1, 3),
        "ShareAcknowledge": range(1, 3),
        "ShareFetch": range(1, 3),
        "ShareGroupDescribe": range(1, 2),
        "ShareGroupHeartbeat": range(1, 2),
        "StreamsGroupDescribe": range(1),
        "StreamsGroupHeartbeat": range(1),
        "UnregisterBroker": range(1),
        "WriteShareGroupState": range(2),
    },
}
