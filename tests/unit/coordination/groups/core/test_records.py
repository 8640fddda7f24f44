"""The bytes here were written by Apache Kafka's own record classes."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.coordination.core.errors import CorruptCoordinatorRecord
from quorate.coordination.groups.core.records import (
    CommittedOffset,
    StoredGroup,
    StoredMember,
    decode_record,
    encode_key,
    encode_value,
    group_record,
    offset_record,
)
from quorate.kernel.ids import GroupId, LeaderEpoch, MemberId, Offset, PartitionIndex, TopicName, TopicPartition

GROUP = GroupId("group")
TOPIC_PARTITION = TopicPartition(TopicName("töpic"), PartitionIndex(7))
OFFSET_KEY = bytes.fromhex("0001000567726f7570000674c3b670696300000007")
GROUP_KEY = bytes.fromhex("0002000567726f7570")
OFFSET_VALUES = {
    0: "00000000011f71fb04cb00046e6f74650000018bcfe56800",
    1: "00010000011f71fb04cb00046e6f74650000018bcfe568000000018bcfeae640",
    2: "00020000011f71fb04cb00046e6f74650000018bcfe56800",
    3: "00030000011f71fb04cb0000000500046e6f74650000018bcfe56800",
    4: "00040000011f71fb04cb00000005056e6f74650000018bcfe5680000",
}
GROUP_VALUES = {
    0: "00000008636f6e73756d657200000003000572616e676500036d2d310000000200036d2d310006636c69656e74000a2f3132372e302e"
    "302e310000afc80000000201020000000303040500036d2d320006636c69656e74000a2f3132372e302e302e31000027100000000000"
    "00000106",
    1: "00010008636f6e73756d657200000003000572616e676500036d2d310000000200036d2d310006636c69656e74000a2f3132372e302e"
    "302e31000493e00000afc80000000201020000000303040500036d2d320006636c69656e74000a2f3132372e302e302e310000ea6000"
    "002710000000000000000106",
    2: "00020008636f6e73756d657200000003000572616e676500036d2d310000018bcfe568000000000200036d2d310006636c69656e7400"
    "0a2f3132372e302e302e31000493e00000afc80000000201020000000303040500036d2d320006636c69656e74000a2f3132372e302e"
    "302e310000ea6000002710000000000000000106",
    3: "00030008636f6e73756d657200000003000572616e676500036d2d310000018bcfe568000000000200036d2d31ffff0006636c69656e"
    "74000a2f3132372e302e302e31000493e00000afc80000000201020000000303040500036d2d320008696e7374616e63650006636c69"
    "656e74000a2f3132372e302e302e310000ea6000002710000000000000000106",
    4: "000409636f6e73756d6572000000030672616e6765046d2d310000018bcfe5680003046d2d310007636c69656e740b2f3132372e302e"
    "302e31000493e00000afc80301020403040500046d2d3209696e7374616e636507636c69656e740b2f3132372e302e302e310000ea60"
    "000027100102060000",
}
OFFSET = CommittedOffset(
    offset=Offset(1234567890123), leader_epoch=LeaderEpoch(5), metadata="note", commit_timestamp_ms=1_700_000_000_000
)
STORED = StoredGroup(
    protocol_type="consumer",
    generation=3,
    protocol_name="range",
    leader=MemberId("m-1"),
    state_timestamp_ms=1_700_000_000_000,
    members=(
        StoredMember(
            member_id=MemberId("m-1"),
            group_instance_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=300_000,
            session_timeout_ms=45_000,
            subscription=b"\1\2",
            assignment=b"\3\4\5",
        ),
        StoredMember(
            member_id=MemberId("m-2"),
            group_instance_id="instance",
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=10_000,
            subscription=b"",
            assignment=b"\6",
        ),
    ),
)


def test_offset_is_written_as_kafka_writes_it() -> None:
    record = offset_record(GROUP, TOPIC_PARTITION, OFFSET)

    assert encode_key(record) == OFFSET_KEY
    assert encode_value(record) == bytes.fromhex(OFFSET_VALUES[3])


def test_offset_with_a_retention_of_its_own_is_written_in_the_version_that_has_room_for_it() -> None:
    value = msgspec.structs.replace(OFFSET, leader_epoch=LeaderEpoch(-1), expire_timestamp_ms=1_700_000_360_000)

    assert encode_value(offset_record(GROUP, TOPIC_PARTITION, value)) == bytes.fromhex(OFFSET_VALUES[1])


def test_group_is_written_as_kafka_writes_it() -> None:
    record = group_record(GROUP, STORED)

    assert encode_key(record) == GROUP_KEY
    assert encode_value(record) == bytes.fromhex(GROUP_VALUES[3])


def test_empty_group_has_null_protocol_and_leader() -> None:
    empty = msgspec.structs.replace(STORED, generation=4, protocol_name=None, leader=None, members=())

    expected = "00030008636f6e73756d657200000004ffffffff0000018bcfe5680000000000"
    assert encode_value(group_record(GROUP, empty)) == bytes.fromhex(expected)


@pytest.mark.parametrize("version", OFFSET_VALUES)
def test_every_version_of_an_offset_is_read(version: int) -> None:
    record = decode_record(OFFSET_KEY, bytes.fromhex(OFFSET_VALUES[version]))

    assert record == offset_record(
        GROUP,
        TOPIC_PARTITION,
        msgspec.structs.replace(
            OFFSET,
            leader_epoch=LeaderEpoch(5 if version >= 3 else -1),
            expire_timestamp_ms=1_700_000_360_000 if version == 1 else None,
        ),
    )


@pytest.mark.parametrize("version", GROUP_VALUES)
def test_every_version_of_a_group_is_read(version: int) -> None:
    record = decode_record(GROUP_KEY, bytes.fromhex(GROUP_VALUES[version]))

    first, second = STORED.members
    if version < 3:
        second = msgspec.structs.replace(second, group_instance_id=None)
    if version < 1:
        first = msgspec.structs.replace(first, rebalance_timeout_ms=first.session_timeout_ms)
        second = msgspec.structs.replace(second, rebalance_timeout_ms=second.session_timeout_ms)
    timestamp_ms = STORED.state_timestamp_ms if version >= 2 else -1
    expected = msgspec.structs.replace(STORED, state_timestamp_ms=timestamp_ms, members=(first, second))
    assert record == group_record(GROUP, expected)


def test_tombstones_have_no_value() -> None:
    assert encode_value(offset_record(GROUP, TOPIC_PARTITION, None)) is None
    assert encode_value(group_record(GROUP, None)) is None
    assert decode_record(OFFSET_KEY, None) == offset_record(GROUP, TOPIC_PARTITION, None)
    assert decode_record(GROUP_KEY, None) == group_record(GROUP, None)


def test_records_of_other_group_types_are_passed_over() -> None:
    assert decode_record(bytes.fromhex("000b000567726f7570"), b"\x00\x00\x00\x00\x00\x01") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (OFFSET_KEY[:-1], None),
        (OFFSET_KEY, b"\x00\x09"),
        (OFFSET_KEY, bytes.fromhex(OFFSET_VALUES[3])[:-3]),
        (GROUP_KEY, bytes.fromhex(GROUP_VALUES[3])[:40]),
        (GROUP_KEY, b"\x00\x00\x00\x01\xff\x00\x00\x00\x01\xff\xff\xff\xff\x00\x00\x00\x00"),
        (GROUP_KEY, b"\x00\x00\x00\x01c\x00\x00\x00\x01\xff\xff\xff\xff\x7f\xff\xff\xff"),
    ],
)
def test_broken_records_are_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(CorruptCoordinatorRecord):
        decode_record(key, value)


texts = st.text(st.characters(codec="utf-8"), max_size=20)
timestamps = st.integers(0, 2**62)
offsets = st.builds(
    CommittedOffset,
    offset=st.integers(0, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=texts,
    commit_timestamp_ms=timestamps,
)


@settings(deadline=None)
@given(group_id=texts, topic=texts, index=st.integers(0, 2**31 - 1), value=st.none() | offsets)
def test_offset_records_come_back_as_they_were(
    group_id: str, topic: str, index: int, value: CommittedOffset | None
) -> None:
    record = offset_record(GroupId(group_id), TopicPartition(TopicName(topic), PartitionIndex(index)), value)

    assert decode_record(encode_key(record), encode_value(record)) == record


@settings(deadline=None)
@given(key=st.binary(max_size=40), value=st.none() | st.binary(max_size=60))
def test_no_bytes_do_worse_than_be_refused(key: bytes, value: bytes | None) -> None:
    for prefix in (b"", b"\x00\x01", b"\x00\x02"):
        try:
            decode_record(prefix + key, value)
        except CorruptCoordinatorRecord:
            continue
