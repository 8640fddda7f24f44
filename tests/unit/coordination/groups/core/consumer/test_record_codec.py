"""The records of consumer groups as bytes: Kafka's layout, both ways, and what is no record."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.coordination.core.errors import CorruptCoordinatorRecord
from quorate.coordination.groups.core.classic_protocol import GroupProtocol
from quorate.coordination.groups.core.consumer.records import (
    ClassicSupport,
    ConsumerGroupKey,
    ConsumerGroupRecord,
    ConsumerMember,
    CurrentAssignment,
    CurrentAssignmentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberKey,
    MemberRecord,
    MemberState,
    PatternKey,
    PatternRecord,
    ResolvedPattern,
    TargetAssignment,
    TargetAssignmentRecord,
    TargetEpoch,
    TargetEpochRecord,
)
from quorate.coordination.groups.core.consumer.topics import AssignedPartition
from quorate.coordination.groups.core.records import decode_record, encode_key, encode_value
from quorate.kernel.ids import GroupId, MemberId, PartitionIndex, TopicId, TopicName

TYPES = (3, 5, 6, 7, 8, 16)
texts = st.text(max_size=8)
epochs = st.integers(-2, 2**31 - 1)
topics = st.frozensets(texts.map(TopicName), max_size=3)
partitions = st.frozensets(
    st.builds(AssignedPartition, st.uuids().map(lambda each: TopicId(UUID(int=each.int))), epochs.map(PartitionIndex)),
    max_size=4,
)
group_keys = st.builds(ConsumerGroupKey, group_id=texts.map(GroupId))
member_keys = st.builds(MemberKey, group_id=texts.map(GroupId), member_id=texts.map(MemberId))
classic = st.builds(
    ClassicSupport,
    session_timeout_ms=epochs,
    protocols=st.lists(st.builds(GroupProtocol, name=texts, metadata=st.binary(max_size=5)), max_size=2).map(tuple),
)
members = st.builds(
    ConsumerMember,
    instance_id=st.none() | texts,
    rack_id=st.none() | texts,
    client_id=texts,
    client_host=texts,
    topics=topics,
    pattern=st.none() | texts,
    rebalance_timeout_ms=epochs,
    server_assignor=st.none() | texts,
    classic=st.none() | classic,
)
currents = st.builds(
    CurrentAssignment,
    member_epoch=epochs,
    previous_member_epoch=epochs,
    state=st.sampled_from([MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS]),
    assigned=partitions,
    pending_revocation=partitions,
)
long_numbers = st.integers(-(2**63), 2**63 - 1)
records: st.SearchStrategy[ConsumerGroupRecord] = st.one_of(
    st.builds(
        GroupEpochRecord,
        key=group_keys,
        value=st.none() | st.builds(GroupEpoch, epoch=epochs, metadata_hash=long_numbers),
    ),
    st.builds(MemberRecord, key=member_keys, value=st.none() | members),
    st.builds(
        TargetEpochRecord,
        key=group_keys,
        value=st.none() | st.builds(TargetEpoch, epoch=epochs, timestamp_ms=long_numbers),
    ),
    st.builds(
        TargetAssignmentRecord,
        key=member_keys,
        value=st.none() | st.builds(TargetAssignment, partitions=partitions),
    ),
    st.builds(CurrentAssignmentRecord, key=member_keys, value=st.none() | currents),
    st.builds(
        PatternRecord,
        key=st.builds(PatternKey, group_id=texts.map(GroupId), pattern=texts),
        value=st.none() | st.builds(ResolvedPattern, topics=topics, version=long_numbers, timestamp_ms=long_numbers),
    ),
)


@settings(deadline=None)
@given(record=records)
def test_records_come_back_as_they_were(record: ConsumerGroupRecord) -> None:
    assert decode_record(encode_key(record), encode_value(record)) == record


def test_bytes_are_those_of_kafka() -> None:
    epoch = GroupEpochRecord(key=ConsumerGroupKey(group_id=GroupId("g")), value=GroupEpoch(epoch=258, metadata_hash=7))
    assert encode_key(epoch).hex() == "0003000167"
    assert (encode_value(epoch) or b"").hex() == "0000000001020100080000000000000007"

    target = TargetAssignmentRecord(
        key=MemberKey(group_id=GroupId("g"), member_id=MemberId("m")),
        value=TargetAssignment(
            partitions=frozenset({AssignedPartition(TopicId(UUID(int=1)), PartitionIndex(index)) for index in (2, 0)})
        ),
    )
    assert encode_key(target).hex() == "000700016700016d"
    one_topic = "0000000000000000000000000000000103000000000000000200"
    assert (encode_value(target) or b"").hex() == "000002" + one_topic + "00"


def test_member_state_of_a_later_kafka_is_unknown_not_an_error() -> None:
    key = MemberKey(group_id=GroupId("g"), member_id=MemberId("m"))
    stable = CurrentAssignmentRecord(key=key, value=CurrentAssignment(member_epoch=1, previous_member_epoch=0))
    value = bytearray(encode_value(stable) or b"")
    value[10] = 9

    decoded = decode_record(encode_key(stable), bytes(value))
    assert isinstance(decoded, CurrentAssignmentRecord)
    assert decoded.value is not None
    assert decoded.value.state is MemberState.UNKNOWN


@settings(deadline=None)
@given(kind=st.sampled_from(TYPES), key=st.binary(max_size=20), value=st.none() | st.binary(max_size=40))
def test_no_bytes_do_worse_than_be_refused(kind: int, key: bytes, value: bytes | None) -> None:
    try:
        decode_record(kind.to_bytes(2) + key, value)
    except CorruptCoordinatorRecord:
        return


@pytest.mark.parametrize("kind", TYPES)
def test_truncated_key_is_refused(kind: int) -> None:
    with pytest.raises(CorruptCoordinatorRecord):
        decode_record(kind.to_bytes(2) + b"\x00\x05g", None)
