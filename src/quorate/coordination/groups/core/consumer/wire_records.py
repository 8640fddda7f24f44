"""Kafka's schemas for the records of consumer groups in ``__consumer_offsets``, field by field.

The keys open with the record type, the values with their version, which is 0 for all of them.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from quorate.protocol.schema import (
    NEVER_FLEXIBLE,
    NO_UUID,
    Bytes,
    Int8,
    Int32,
    Int64,
    Message,
    String,
    Tagged,
    Uuid,
    VersionedMessage,
)


class RecordKey(VersionedMessage, frozen=True, kw_only=True, gc=False):
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = NEVER_FLEXIBLE


class RecordValue(VersionedMessage, frozen=True, kw_only=True, gc=False):
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0


class GroupOnlyKey(RecordKey, frozen=True, kw_only=True, gc=False):
    """Types 3 and 6."""

    group_id: String = ""


class GroupAndNameKey(RecordKey, frozen=True, kw_only=True, gc=False):
    """Types 5, 7 and 8, where the name is a member's id, and 16, where it is a regular expression."""

    group_id: String = ""
    name: String = ""


class ConsumerGroupMetadataValue(RecordValue, frozen=True, kw_only=True, gc=False):
    epoch: Int32 = 0
    metadata_hash: Annotated[Int64, Tagged(0)] = 0


class ClassicProtocol(Message, frozen=True, kw_only=True, gc=False):
    name: String = ""
    metadata: Bytes = b""


class ClassicMemberMetadata(Message, frozen=True, kw_only=True, gc=False):
    session_timeout_ms: Int32 = 0
    supported_protocols: Sequence[ClassicProtocol] = ()


class ConsumerGroupMemberMetadataValue(RecordValue, frozen=True, kw_only=True, gc=False):
    instance_id: String | None = None
    rack_id: String | None = None
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Sequence[String] = ()
    subscribed_topic_regex: String | None = None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None = None
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, Tagged(0)] = None


class ConsumerGroupTargetAssignmentMetadataValue(RecordValue, frozen=True, kw_only=True, gc=False):
    assignment_epoch: Int32 = 0
    assignment_timestamp: Annotated[Int64, Tagged(0)] = 0


class TargetTopicPartitions(Message, frozen=True, kw_only=True, gc=False):
    topic_id: Uuid = NO_UUID
    partitions: Sequence[Int32] = ()


class ConsumerGroupTargetAssignmentMemberValue(RecordValue, frozen=True, kw_only=True, gc=False):
    topic_partitions: Sequence[TargetTopicPartitions] = ()


class CurrentTopicPartitions(Message, frozen=True, kw_only=True, gc=False):
    topic_id: Uuid = NO_UUID
    partitions: Sequence[Int32] = ()
    assignment_epochs: Annotated[Sequence[Int32] | None, Tagged(0)] = None


class ConsumerGroupCurrentMemberAssignmentValue(RecordValue, frozen=True, kw_only=True, gc=False):
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: Sequence[CurrentTopicPartitions] = ()
    partitions_pending_revocation: Sequence[CurrentTopicPartitions] = ()


class ConsumerGroupRegularExpressionValue(RecordValue, frozen=True, kw_only=True, gc=False):
    topics: Sequence[String] = ()
    version: Int64 = 0
    timestamp: Int64 = 0
