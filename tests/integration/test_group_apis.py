"""Every version of every group API, on the wire: the life of a group as clients of each age live it."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from quorate.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from quorate.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from quorate.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from quorate.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from quorate.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quorate.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from quorate.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from quorate.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from quorate.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from quorate.protocol.schema import NO_UUID, Request
from tests.eventually import eventually
from tests.integration.wire_client import WireClient
from tests.peers.quorate_node import QuorateNode

# One age is one version of each API, kept inside what we serve: together the ages cover every version.
AGES = range(11)
TOPIC = "orders"
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"


def version_at(age: int, request: type[Request], first: int, last: int) -> int:
    assert request.MIN_VERSION <= first <= last <= request.MAX_VERSION
    return min(max(age, first), last)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    folder: Path = tmp_path_factory.mktemp("group-apis")
    configs = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 3}
    with QuorateNode.start(folder, node_id=42, configs=configs) as node:
        with WireClient(node.bootstrap) as client:
            create_topic(client, TOPIC)
        yield node


@pytest.fixture
def client(node: QuorateNode) -> Iterator[WireClient]:
    with WireClient(node.bootstrap) as client:
        yield client


def create_topic(client: WireClient, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    response = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5, CreateTopicsResponse)
    assert response.topics[0].error_code == ErrorCode.NONE


class AgedClient:
    """A group's only member, speaking the versions of its age."""

    def __init__(self, wire: WireClient, age: int, group: str, topic_id: UUID = NO_UUID) -> None:
        self.wire = wire
        self.age = age
        self.group = group
        self.topic_id = topic_id
        self.member_id = ""
        self.generation = -1

    def find_coordinator(self) -> tuple[int, int]:
        """The error, and the node that coordinates the group."""
        version = version_at(self.age, FindCoordinatorRequest, 0, 6)
        if version < 4:
            request = FindCoordinatorRequest(key=self.group)
            one = self.wire.call(request, version, FindCoordinatorResponse)
            return one.error_code, one.node_id
        request = FindCoordinatorRequest(coordinator_keys=[self.group, "another"])
        found = self.wire.call(request, version, FindCoordinatorResponse).coordinators
        assert [coordinator.key for coordinator in found] == [self.group, "another"]
        return found[0].error_code, found[0].node_id

    def join(self) -> JoinGroupResponse:
        version = version_at(self.age, JoinGroupRequest, 0, 9)
        response = self._send_join(version)
        if version >= 4:
            assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
            self.member_id = response.member_id
            response = self._send_join(version)
        self.member_id, self.generation = response.member_id, response.generation_id
        return response

    def _send_join(self, version: int) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )
        return self.wire.call(request, version, JoinGroupResponse)

    def sync(self, assignment: bytes) -> SyncGroupResponse:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=self.member_id, assignment=assignment)],
        )
        return self.wire.call(request, version_at(self.age, SyncGroupRequest, 0, 5), SyncGroupResponse)

    def heartbeat(self) -> int:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        return self.wire.call(request, version_at(self.age, HeartbeatRequest, 0, 4), HeartbeatResponse).error_code

    def commit(self, offset: int) -> dict[int, int]:
        """The errors for partition 0, which exists, and partition 9, which does not."""
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_leader_epoch=0, committed_metadata="note"
            )
            for index in (0, 9)
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
        )
        version = version_at(self.age, OffsetCommitRequest, 2, 9)
        [topic] = self.wire.call(request, version, OffsetCommitResponse).topics
        return {partition.partition_index: partition.error_code for partition in topic.partitions}

    def fetch(self, *, everything: bool = False) -> dict[int, tuple[int, str | None, int]]:
        """Offset, metadata and error for each partition asked for."""
        version = version_at(self.age, OffsetFetchRequest, 1, 10)
        if version < 8:
            asked = (
                None if everything and version >= 2 else [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
            )
            response = self.wire.call(
                OffsetFetchRequest(group_id=self.group, topics=asked), version, OffsetFetchResponse
            )
            assert response.error_code == ErrorCode.NONE
            return {
                found.partition_index: (found.committed_offset, found.metadata, found.error_code)
                for topic in response.topics
                for found in topic.partitions
            }
        topics = [OffsetFetchRequestTopics(name=TOPIC, topic_id=self.topic_id, partition_indexes=[0])]
        groups = [
            OffsetFetchRequestGroup(group_id=self.group, topics=None if everything else topics),
            OffsetFetchRequestGroup(group_id="nobody", topics=None),
        ]
        response = self.wire.call(OffsetFetchRequest(groups=groups), version, OffsetFetchResponse)
        mine, nobodys = response.groups
        assert (mine.error_code, nobodys.error_code, nobodys.topics) == (0, 0, ())
        return {
            found.partition_index: (found.committed_offset, found.metadata, found.error_code)
            for topic in mine.topics
            for found in topic.partitions
        }

    def leave(self) -> int:
        version = version_at(self.age, LeaveGroupRequest, 0, 5)
        if version < 3:
            request = LeaveGroupRequest(group_id=self.group, member_id=self.member_id)
            return self.wire.call(request, version, LeaveGroupResponse).error_code
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self.member_id)])
        response = self.wire.call(request, version, LeaveGroupResponse)
        assert response.error_code == ErrorCode.NONE
        return response.members[0].error_code


@pytest.fixture(params=AGES, ids=lambda age: f"age-{age}")
def aged(request: pytest.FixtureRequest, client: WireClient) -> AgedClient:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    [topic] = client.call(asked, 12, MetadataResponse).topics
    return AgedClient(client, request.param, f"group-of-age-{request.param}", topic.topic_id)


def test_group_lives_and_dies_in_every_version(aged: AgedClient) -> None:
    assert aged.find_coordinator() == (ErrorCode.NONE, 42)
    joined = aged.join()
    assert (joined.error_code, joined.generation_id, joined.leader) == (ErrorCode.NONE, 1, aged.member_id)
    assert [(member.member_id, member.metadata) for member in joined.members] == [(aged.member_id, SUBSCRIPTION)]
    assert aged.sync(b"everything").assignment == b"everything"
    assert aged.heartbeat() == ErrorCode.NONE
    assert aged.fetch() == {0: (-1, "", ErrorCode.NONE)}
    assert aged.commit(17) == {0: ErrorCode.NONE, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert aged.fetch() == aged.fetch(everything=True) == {0: (17, "note", ErrorCode.NONE)}
    check_description(aged)
    assert delete_group(aged) == ErrorCode.NON_EMPTY_GROUP
    assert aged.leave() == ErrorCode.NONE
    assert aged.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert delete_group(aged) == ErrorCode.NONE
    assert delete_group(aged) == ErrorCode.GROUP_ID_NOT_FOUND
    assert aged.fetch() == {0: (-1, "", ErrorCode.NONE)}


def check_description(aged: AgedClient) -> None:
    version = version_at(aged.age, DescribeGroupsRequest, 0, 6)
    request = DescribeGroupsRequest(groups=[aged.group, "nobody"])
    found = {group.group_id: group for group in aged.wire.call(request, version, DescribeGroupsResponse).groups}
    mine, nobodys = found[aged.group], found["nobody"]
    assert (mine.error_code, mine.group_state, mine.protocol_type, mine.protocol_data) == (
        ErrorCode.NONE,
        "Stable",
        "consumer",
        "range",
    )
    [member] = mine.members
    assert (member.member_id, member.client_id, member.client_host) == (aged.member_id, "wire", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"everything")
    assert nobodys.group_state == "Dead"
    assert nobodys.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)

    version = version_at(aged.age, ListGroupsRequest, 0, 5)
    stable = ListGroupsRequest(
        states_filter=["stable"] if version >= 4 else [], types_filter=["Classic"] if version >= 5 else []
    )
    response = aged.wire.call(stable, version, ListGroupsResponse)
    assert response.error_code == ErrorCode.NONE
    [listed] = [group for group in response.groups if group.group_id == aged.group]
    assert listed.group_state == ("Stable" if version >= 4 else "")
    assert listed.group_type == ("classic" if version >= 5 else "")
    if version >= 4:
        empty = aged.wire.call(ListGroupsRequest(states_filter=["Empty"]), version, ListGroupsResponse)
        assert aged.group not in {group.group_id for group in empty.groups}


def delete_group(aged: AgedClient) -> int:
    version = version_at(aged.age, DeleteGroupsRequest, 0, 2)
    [result] = aged.wire.call(DeleteGroupsRequest(groups_names=[aged.group]), version, DeleteGroupsResponse).results
    return result.error_code


def test_offsets_of_a_topic_that_is_read_cannot_be_deleted(client: WireClient) -> None:
    create_topic(client, "left-behind")
    member = AgedClient(client, 9, "reader")
    member.join()
    member.sync(b"")
    for topic in (TOPIC, "left-behind"):
        commit_plainly(member, topic)
    topics = [
        OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        for name in (TOPIC, "left-behind", "missing")
    ]

    response = client.call(OffsetDeleteRequest(group_id="reader", topics=topics), 0, OffsetDeleteResponse)
    assert {topic.name: topic.partitions[0].error_code for topic in response.topics} == {
        TOPIC: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        "left-behind": ErrorCode.NONE,
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    missing = client.call(OffsetDeleteRequest(group_id="nobody", topics=topics), 0, OffsetDeleteResponse)
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def commit_plainly(member: AgedClient, topic: str) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    request = OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    [answered] = member.wire.call(request, 5, OffsetCommitResponse).topics
    assert answered.partitions[0].error_code == ErrorCode.NONE


def test_offsets_go_with_their_topic(client: WireClient) -> None:
    create_topic(client, "short-lived")
    simple = AgedClient(client, 5, "simple-consumer")
    commit_plainly(simple, "short-lived")

    deletion = DeleteTopicsRequest(topic_names=["short-lived"], timeout_ms=10_000)
    assert client.call(deletion, 4, DeleteTopicsResponse).responses[0].error_code == ErrorCode.NONE

    def nothing_committed() -> bool:
        request = OffsetFetchRequest(group_id="simple-consumer", topics=None)
        return not client.call(request, 5, OffsetFetchResponse).topics

    eventually(nothing_committed, "the offsets to be forgotten")


def test_unknown_topic_ids_are_named_as_such(client: WireClient, node: QuorateNode) -> None:
    member = AgedClient(client, 10, "by-id", UUID(int=99))
    assert member.fetch() == {0: (-1, "", ErrorCode.UNKNOWN_TOPIC_ID)}


def test_coordinators_that_do_not_exist_here_are_refused_for_good(client: WireClient) -> None:
    share = 2
    request = FindCoordinatorRequest(coordinator_keys=["share-group"], key_type=share)

    [found] = client.call(request, 4, FindCoordinatorResponse).coordinators
    assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)


def test_request_that_waits_holds_up_only_its_own_connection(node: QuorateNode, client: WireClient) -> None:
    member = AgedClient(client, 9, "patient")
    member.join()
    member.sync(b"")
    with WireClient(node.bootstrap) as other_connection:
        request = JoinGroupRequest(
            group_id="patient",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )
        other_connection.send(request, 3)

        def told_to_rebalance() -> bool:
            return member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS

        eventually(told_to_rebalance, "the member to be told to join again")
        member._send_join(9)
        joined = other_connection.receive(3, JoinGroupResponse)
        assert joined.generation_id == 2
