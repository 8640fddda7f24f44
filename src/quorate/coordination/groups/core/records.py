"""What the coordinator keeps in ``__consumer_offsets``, and its bytes, exactly as Apache Kafka writes them.

A record is a key and a value; a record without a value is a tombstone. Keys and values open with an int16: the key's
says what kind of record it is, the value's is its schema version. Offsets are written as key 1 with value 3 (value 1
where an expiry is set, the only version that has room for it), groups as key 2 with value 3. All earlier value versions
are read, and the flexible version 4 that newer Kafka releases write.
"""

import struct

import msgspec

from quorate.coordination.core.errors import CorruptCoordinatorRecord
from quorate.coordination.groups.core.consumer import records as consumer
from quorate.coordination.groups.core.consumer.records import ConsumerGroupRecord
from quorate.kernel.ids import (
    NO_LEADER_EPOCH,
    GroupId,
    LeaderEpoch,
    MemberId,
    Offset,
    PartitionIndex,
    TopicName,
    TopicPartition,
)
from quorate.protocol.errors import ProtocolError

_OFFSET_KEY_VERSION = 1
_GROUP_KEY_VERSION = 2
_OFFSET_VALUE_VERSION = 3
_OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
_GROUP_VALUE_VERSION = 3
_FIRST_FLEXIBLE_VALUE_VERSION = 4
_NO_TIMESTAMP = -1
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class OffsetKey(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    topic_partition: TopicPartition


class CommittedOffset(msgspec.Struct, frozen=True, kw_only=True):
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    commit_timestamp_ms: int
    # Only where a client before OffsetCommit 5 asked for a retention of its own.
    expire_timestamp_ms: int | None = None


class GroupKey(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId


class StoredMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: MemberId
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes  # The member's metadata for the protocol that the group chose.
    assignment: bytes


class StoredGroup(msgspec.Struct, frozen=True, kw_only=True):
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: MemberId | None
    state_timestamp_ms: int
    members: tuple[StoredMember, ...]


class OffsetRecord(msgspec.Struct, frozen=True, kw_only=True):
    key: OffsetKey
    value: CommittedOffset | None


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True):
    key: GroupKey
    value: StoredGroup | None


CoordinatorRecord = OffsetRecord | GroupRecord | ConsumerGroupRecord


def offset_record(group_id: GroupId, topic_partition: TopicPartition, value: CommittedOffset | None) -> OffsetRecord:
    return OffsetRecord(key=OffsetKey(group_id=group_id, topic_partition=topic_partition), value=value)


def group_record(group_id: GroupId, value: StoredGroup | None) -> GroupRecord:
    return GroupRecord(key=GroupKey(group_id=group_id), value=value)


def encode_key(record: CoordinatorRecord) -> bytes:
    if isinstance(record, OffsetRecord):
        topic, partition = record.key.topic_partition
        return b"".join(
            (
                struct.pack(">h", _OFFSET_KEY_VERSION),
                _string(record.key.group_id),
                _string(topic),
                struct.pack(">i", partition),
            )
        )
    if isinstance(record, GroupRecord):
        return struct.pack(">h", _GROUP_KEY_VERSION) + _string(record.key.group_id)
    return consumer.encode_key(record)


def encode_value(record: CoordinatorRecord) -> bytes | None:
    if record.value is None:
        return None
    if isinstance(record, OffsetRecord):
        return _encode_offset(record.value)
    if isinstance(record, GroupRecord):
        return _encode_group(record.value)
    return consumer.encode_value(record)


def _encode_offset(value: CommittedOffset) -> bytes:
    if value.expire_timestamp_ms is not None:
        return b"".join(
            (
                struct.pack(">hq", _OFFSET_VALUE_VERSION_WITH_EXPIRY, value.offset),
                _string(value.metadata),
                struct.pack(">qq", value.commit_timestamp_ms, value.expire_timestamp_ms),
            )
        )
    return b"".join(
        (
            struct.pack(">hqi", _OFFSET_VALUE_VERSION, value.offset, value.leader_epoch),
            _string(value.metadata),
            struct.pack(">q", value.commit_timestamp_ms),
        )
    )


def _encode_group(group: StoredGroup) -> bytes:
    parts = [
        struct.pack(">h", _GROUP_VALUE_VERSION),
        _string(group.protocol_type),
        struct.pack(">i", group.generation),
        _string(group.protocol_name),
        _string(group.leader),
        struct.pack(">qi", group.state_timestamp_ms, len(group.members)),
    ]
    for member in group.members:
        parts += (
            _string(member.member_id),
            _string(member.group_instance_id),
            _string(member.client_id),
            _string(member.client_host),
            struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        )
    return b"".join(parts)


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _bytes(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def decode_record(key: bytes | memoryview, value: bytes | memoryview | None) -> CoordinatorRecord | None:
    """The record, or None for a kind that belongs to other group types and is not kept here."""
    try:
        key_reader = _Reader(key)
        key_version = key_reader.int16()
        if key_version in (0, _OFFSET_KEY_VERSION):
            return OffsetRecord(
                key=_decode_offset_key(key_reader), value=None if value is None else _decode_offset(_Reader(value))
            )
        if key_version == _GROUP_KEY_VERSION:
            return GroupRecord(
                key=GroupKey(group_id=GroupId(key_reader.string())),
                value=None if value is None else _decode_group(_Reader(value)),
            )
        if key_version in consumer.KEY_TYPES:
            return consumer.decode_consumer_record(key_version, bytes(key), None if value is None else bytes(value))
    except (struct.error, UnicodeDecodeError, ProtocolError) as error:
        raise CorruptCoordinatorRecord(f"cannot read record with key {bytes(key)[:64].hex()}: {error}") from error
    return None


def _decode_offset_key(reader: "_Reader") -> OffsetKey:
    group_id, topic = GroupId(reader.string()), TopicName(reader.string())
    return OffsetKey(group_id=group_id, topic_partition=TopicPartition(topic, PartitionIndex(reader.int32())))


def _decode_offset(reader: "_Reader") -> CommittedOffset:
    version = reader.value_version()
    offset = Offset(reader.int64())
    leader_epoch = LeaderEpoch(reader.int32()) if version >= 3 else NO_LEADER_EPOCH
    metadata = reader.string()
    commit_timestamp_ms = reader.int64()
    expire_timestamp_ms = reader.int64() if version == _OFFSET_VALUE_VERSION_WITH_EXPIRY else _NO_TIMESTAMP
    return CommittedOffset(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp_ms=commit_timestamp_ms,
        expire_timestamp_ms=None if expire_timestamp_ms == _NO_TIMESTAMP else expire_timestamp_ms,
    )


def _decode_group(reader: "_Reader") -> StoredGroup:
    version = reader.value_version()
    protocol_type, generation = reader.string(), reader.int32()
    protocol_name, leader = reader.nullable_string(), reader.nullable_string()
    return StoredGroup(
        protocol_type=protocol_type,
        generation=generation,
        protocol_name=protocol_name,
        leader=None if leader is None else MemberId(leader),
        state_timestamp_ms=reader.int64() if version >= 2 else _NO_TIMESTAMP,
        members=tuple(_decode_member(reader, version) for _ in range(reader.array_length())),
    )


def _decode_member(reader: "_Reader", version: int) -> StoredMember:
    member_id = MemberId(reader.string())
    group_instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else None
    session_timeout_ms = reader.int32()
    member = StoredMember(
        member_id=member_id,
        group_instance_id=group_instance_id,
        client_id=client_id,
        client_host=client_host,
        # Version 0 comes from clients that knew one timeout for both.
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=reader.byte_string(),
        assignment=reader.byte_string(),
    )
    reader.skip_tagged_fields()
    return member


class _Reader:
    """Walks over one key or value; strings and counts are compact once a flexible version was read."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = bytes(data)
        self._position = 0
        self._flexible = False

    def value_version(self) -> int:
        version = self.int16()
        if not 0 <= version <= _FIRST_FLEXIBLE_VALUE_VERSION:
            raise CorruptCoordinatorRecord(f"unknown value version {version}")
        self._flexible = version >= _FIRST_FLEXIBLE_VALUE_VERSION
        return version

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise CorruptCoordinatorRecord("null where a string must be")
        return text

    def nullable_string(self) -> str | None:
        length = self._unsigned_varint() - 1 if self._flexible else self._number(_INT16)
        return None if length < 0 else self._take(length).decode()

    def byte_string(self) -> bytes:
        return self._take(self._unsigned_varint() - 1 if self._flexible else self.int32())

    def array_length(self) -> int:
        length = self._unsigned_varint() - 1 if self._flexible else self.int32()
        if not 0 <= length <= len(self._data):
            raise CorruptCoordinatorRecord(f"{length} elements in {len(self._data)} bytes")
        return length

    def skip_tagged_fields(self) -> None:
        if self._flexible:
            for _ in range(self._unsigned_varint()):
                self._unsigned_varint()
                self._take(self._unsigned_varint())

    def _number(self, layout: struct.Struct) -> int:
        value: int = layout.unpack_from(self._data, self._position)[0]
        self._position += layout.size
        return value

    def _unsigned_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise CorruptCoordinatorRecord(f"{length} bytes wanted at {self._position} of {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return taken
