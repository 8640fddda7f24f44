"""Apache Kafka's own tool reads the records of consumer groups that the coordinator writes."""

import subprocess
from pathlib import Path
from uuid import UUID

import pytest

from quorate.coordination.groups.core.classic_protocol import GroupProtocol
from quorate.coordination.groups.core.consumer.records import (
    ClassicSupport,
    ConsumerGroupKey,
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
from quorate.coordination.groups.core.records import CoordinatorRecord, encode_key, encode_value
from quorate.kernel.ids import GroupId, LeaderEpoch, MemberId, Offset, PartitionIndex, TopicId, TopicName
from quorate.records.batch import read_header
from quorate.records.builder import build_batch
from quorate.records.record import Record
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from quorate.storage.os_disk import OsDisk
from tests.peers.jars import java_command
from tests.peers.kafka_tools import MAIN_CLASSES, TOOL_TIMEOUT_S
from tests.proofs import KAFKA_TOOLS

pytestmark = [
    pytest.mark.peer,
    pytest.mark.usefixtures("kafka_classpath"),
    pytest.mark.proves(*KAFKA_TOOLS, "kafka-dump-log: the group coordinator's records"),
]

NOW_MS = 1_700_000_000_000
GROUP = ConsumerGroupKey(group_id=GroupId("readers"))
MEMBER = MemberKey(group_id=GroupId("readers"), member_id=MemberId("member-1"))
PARTITION = AssignedPartition(TopicId(UUID(int=2**127 + 5)), PartitionIndex(3))
RECORDS: dict[str, CoordinatorRecord] = {
    '"epoch":7,"metadataHash":-42': GroupEpochRecord(key=GROUP, value=GroupEpoch(epoch=7, metadata_hash=-42)),
    '"subscribedTopicNames":["a","b"],"subscribedTopicRegex":"a.*"': MemberRecord(
        key=MEMBER,
        value=ConsumerMember(
            instance_id="one",
            client_id="client",
            client_host="/127.0.0.1",
            topics=frozenset({TopicName("a"), TopicName("b")}),
            pattern="a.*",
            rebalance_timeout_ms=300_000,
            server_assignor="uniform",
            classic=ClassicSupport(
                session_timeout_ms=45_000, protocols=(GroupProtocol(name="range", metadata=b"bytes"),)
            ),
        ),
    ),
    '"assignmentEpoch":7,"assignmentTimestamp":99': TargetEpochRecord(
        key=GROUP, value=TargetEpoch(epoch=7, timestamp_ms=99)
    ),
    '"topicPartitions":[{': TargetAssignmentRecord(
        key=MEMBER, value=TargetAssignment(partitions=frozenset({PARTITION}))
    ),
    '"memberEpoch":6,"previousMemberEpoch":5,"state":1': CurrentAssignmentRecord(
        key=MEMBER,
        value=CurrentAssignment(
            member_epoch=6,
            previous_member_epoch=5,
            state=MemberState.UNREVOKED_PARTITIONS,
            pending_revocation=frozenset({PARTITION}),
        ),
    ),
    '"topics":["a","ab"],"version":12,"timestamp":34': PatternRecord(
        key=PatternKey(group_id=GroupId("readers"), pattern="a.*"),
        value=ResolvedPattern(topics=frozenset({TopicName("a"), TopicName("ab")}), version=12, timestamp_ms=34),
    ),
}


def test_records_of_consumer_groups_are_what_the_tool_expects(tmp_path: Path) -> None:
    directory = tmp_path / "__consumer_offsets-0"
    log = PartitionLog.open(OsDisk(), str(directory), LogConfig())
    batch = build_batch(
        Record(Offset(index), NOW_MS, encode_key(record), encode_value(record))
        for index, record in enumerate(RECORDS.values())
    )
    log.append_as_leader(memoryview(bytearray(batch)), [read_header(batch)], leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    log.close()

    [segment] = directory.glob("*.log")
    command = java_command(MAIN_CLASSES["kafka-dump-log"], "--files", str(segment), "--offsets-decoder")
    dump = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=True).stdout

    for expected in RECORDS:
        assert expected in dump, dump
    assert '"classicMemberMetadata":{"sessionTimeoutMs":45000,"supportedProtocols":[{"name":"range"' in dump, dump
