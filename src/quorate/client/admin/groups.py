"""Consumer groups, asked of their coordinators: listed, described, deleted; their committed offsets fetched, set and
deleted, in old and new versions.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from quorate.client.cluster import Cluster
from quorate.client.cluster_metadata import LiveBroker
from quorate.client.connections.connection import Connection
from quorate.client.errors import UnsupportedApi, check
from quorate.client.leader_calls import by_topic
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.kernel.ids import (
    NO_LEADER_EPOCH,
    GroupId,
    LeaderEpoch,
    MemberId,
    NodeId,
    Offset,
    PartitionIndex,
    TopicName,
    TopicPartition,
)
from quorate.protocol.codec import decode_versioned
from quorate.protocol.errors import ProtocolError
from quorate.protocol.messages import consumer_group_describe, describe_groups
from quorate.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from quorate.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
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
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

T = TypeVar("T")

_GROUP_KEY_TYPE: Final = 0
#: From this version on several keys go into one request, in another field.
_MANY_KEYS_VERSION: Final = 4


class Coordinators:
    """Which broker coordinates a group, asked for and remembered until it turns out wrong."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[GroupId, LiveBroker] = {}
        self._lock = threading.Lock()

    def call(self, group_id: GroupId, what: str, ask: Callable[[LiveBroker], T]) -> T:
        """Ask the group's coordinator, look for it again where it moved, and retry while it loads."""

        def attempt() -> T:
            with self._lock:
                coordinator = self._known.get(group_id)
            coordinator = coordinator or self._find(group_id)
            try:
                return ask(coordinator)
            except QuorateError:
                with self._lock:
                    self._known.pop(group_id, None)
                raise

        return self._cluster.retry(what, attempt)

    def _find(self, group_id: GroupId) -> LiveBroker:
        def ask(connection: Connection) -> FindCoordinatorResponse:
            version = connection.versions.choose(FindCoordinatorRequest)
            if version >= _MANY_KEYS_VERSION:
                request = FindCoordinatorRequest(key_type=_GROUP_KEY_TYPE, coordinator_keys=[group_id])
            else:
                request = FindCoordinatorRequest(key=group_id)
            return connection.ask(request, FindCoordinatorResponse, version)

        answer = self._cluster.first_answer("FindCoordinator", ask)
        found = answer.coordinators[0] if answer.coordinators else answer
        check(found.error_code, f"find the coordinator of group {group_id}", found.error_message)
        coordinator = LiveBroker(node_id=NodeId(found.node_id), address=Address(found.host, found.port))
        with self._lock:
            self._known[group_id] = coordinator
        return coordinator


#: The newest version that still names topics by name.
_NAMES_VERSION: Final = 9
_MANY_GROUPS_VERSION: Final = 8
_STABLE_VERSION: Final = 7


class OffsetAndMetadata(msgspec.Struct, frozen=True, kw_only=True):
    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str | None = ""


class GroupOffsets:
    def __init__(self, cluster: Cluster, coordinators: Coordinators) -> None:
        self._cluster = cluster
        self._coordinators = coordinators

    def fetch(self, group_id: GroupId, *, require_stable: bool) -> dict[TopicPartition, OffsetAndMetadata]:
        def build(version: int) -> OffsetFetchRequest:
            if version >= _MANY_GROUPS_VERSION:
                groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None)]
                return OffsetFetchRequest(groups=groups, require_stable=require_stable)
            is_stable = require_stable and version >= _STABLE_VERSION
            return OffsetFetchRequest(group_id=group_id, topics=None, require_stable=is_stable)

        def ask(coordinator: LiveBroker) -> dict[TopicPartition, OffsetAndMetadata]:
            answer = self._cluster.ask_node_in_version(
                coordinator, OffsetFetchRequest, OffsetFetchResponse, build, ceiling=_NAMES_VERSION
            )
            return _read_offsets(group_id, answer)

        return self._coordinators.call(group_id, "OffsetFetch", ask)

    def commit(self, group_id: GroupId, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for partition, committed in offsets.items():
            topics.setdefault(partition.topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=group_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=found) for name, found in topics.items()],
        )

        def ask(coordinator: LiveBroker) -> None:
            answer = self._cluster.ask_node(coordinator, request, OffsetCommitResponse, ceiling=_NAMES_VERSION)
            for topic in answer.topics:
                for found in topic.partitions:
                    what = f"commit the offset of group {group_id} for partition {topic.name}-{found.partition_index}"
                    check(found.error_code, what)

        self._coordinators.call(group_id, "OffsetCommit", ask)

    def delete(self, group_id: GroupId, partitions: Iterable[TopicPartition]) -> None:
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
                )
                for name, indexes in by_topic(partitions).items()
            ],
        )

        def ask(coordinator: LiveBroker) -> None:
            answer = self._cluster.ask_node(coordinator, request, OffsetDeleteResponse)
            check(answer.error_code, f"delete offsets of group {group_id}")
            for topic in answer.topics:
                for found in topic.partitions:
                    what = f"delete the offset of group {group_id} for partition {topic.name}-{found.partition_index}"
                    check(found.error_code, what)

        self._coordinators.call(group_id, "OffsetDelete", ask)


def _read_offsets(group_id: GroupId, answer: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
    what = f"fetch the offsets of group {group_id}"
    check(answer.error_code, what)
    for group in answer.groups:
        check(group.error_code, what)
    topics: list[OffsetFetchResponseTopic | OffsetFetchResponseTopics] = list(answer.topics)
    topics += [topic for group in answer.groups for topic in group.topics]
    offsets = {}
    for topic in topics:
        for found in topic.partitions:
            check(found.error_code, f"{what} for partition {topic.name}-{found.partition_index}")
            if found.committed_offset >= 0:
                partition = TopicPartition(TopicName(topic.name), PartitionIndex(found.partition_index))
                offsets[partition] = OffsetAndMetadata(
                    offset=Offset(found.committed_offset),
                    leader_epoch=LeaderEpoch(found.committed_leader_epoch),
                    metadata=found.metadata,
                )
    return offsets


CONSUMER_PROTOCOL = "consumer"


class GroupListing(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    #: "consumer" for consumers; empty for a group that only has committed offsets.
    protocol_type: str
    #: Empty where the broker is too old to tell.
    state: str
    #: "classic" or "consumer" (KIP-848); empty where the broker is too old to tell.
    group_type: str


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: MemberId
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]


class GroupDescription(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    state: str
    protocol_type: str
    #: The assignor.
    protocol: str
    members: tuple[GroupMember, ...]

    @property
    def is_active(self) -> bool:
        """Whether members are there, so that offsets cannot be committed from outside."""
        return bool(self.members) or self.state not in ("Empty", "Dead")


class Groups:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster)
        self._offsets = GroupOffsets(cluster, self._coordinators)

    def list(self) -> Sequence[GroupListing]:
        """Every group, from all brokers: each knows those that it coordinates."""
        return self._cluster.retry("ListGroups", self._list)

    def describe(self, group_ids: Iterable[str]) -> dict[GroupId, GroupDescription]:
        """One that does not exist is described as "Dead"."""
        return {GroupId(group_id): self._describe(GroupId(group_id)) for group_id in group_ids}

    def delete(self, group_ids: Iterable[str]) -> None:
        for group_id in group_ids:
            request = DeleteGroupsRequest(groups_names=[group_id])

            def ask(coordinator: LiveBroker, request: DeleteGroupsRequest = request) -> None:
                answer = self._cluster.ask_node(coordinator, request, DeleteGroupsResponse)
                for result in answer.results:
                    check(result.error_code, f"delete group {result.group_id}")

            self._coordinators.call(GroupId(group_id), "DeleteGroups", ask)

    def offsets(self, group_id: str, *, require_stable: bool = False) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed, for all its partitions."""
        return self._offsets.fetch(GroupId(group_id), require_stable=require_stable)

    def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit from outside, which the coordinator allows while the group has no members."""
        self._offsets.commit(GroupId(group_id), offsets)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        self._offsets.delete(GroupId(group_id), partitions)

    def _list(self) -> Sequence[GroupListing]:
        found: dict[GroupId, GroupListing] = {}
        for broker in self._cluster.brokers().values():
            answer = self._cluster.ask_node(broker, ListGroupsRequest(), ListGroupsResponse)
            check(answer.error_code, f"list the groups of broker {broker.node_id}")
            for group in answer.groups:
                group_id = GroupId(group.group_id)
                found[group_id] = GroupListing(
                    group_id=group_id,
                    protocol_type=group.protocol_type,
                    state=group.group_state,
                    group_type=group.group_type,
                )
        return sorted(found.values(), key=lambda group: group.group_id)

    def _describe(self, group_id: GroupId) -> GroupDescription:
        """A group of the new protocol (KIP-848) is not described by the old API, nor the other way round."""
        try:
            return self._coordinators.call(
                group_id, "ConsumerGroupDescribe", lambda coordinator: self._describe_consumer(coordinator, group_id)
            )
        except UnsupportedApi:
            pass
        except KafkaError as error:
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
        return self._coordinators.call(
            group_id, "DescribeGroups", lambda coordinator: self._describe_classic(coordinator, group_id)
        )

    def _describe_consumer(self, coordinator: LiveBroker, group_id: GroupId) -> GroupDescription:
        request = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[group_id])
        answer = self._cluster.ask_node(coordinator, request, consumer_group_describe.ConsumerGroupDescribeResponse)
        group = answer.groups[0]
        check(group.error_code, f"describe group {group_id}", group.error_message)
        return GroupDescription(
            group_id=group_id,
            state=group.group_state,
            protocol_type=CONSUMER_PROTOCOL,
            protocol=group.assignor_name,
            members=tuple(
                GroupMember(
                    member_id=MemberId(member.member_id),
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    assignment=tuple(
                        TopicPartition(TopicName(topic.topic_name), PartitionIndex(index))
                        for topic in member.assignment.topic_partitions
                        for index in topic.partitions
                    ),
                )
                for member in group.members
            ),
        )

    def _describe_classic(self, coordinator: LiveBroker, group_id: GroupId) -> GroupDescription:
        request = describe_groups.DescribeGroupsRequest(groups=[group_id])
        answer = self._cluster.ask_node(coordinator, request, describe_groups.DescribeGroupsResponse)
        group = answer.groups[0]
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return GroupDescription(group_id=group_id, state="Dead", protocol_type="", protocol="", members=())
        check(group.error_code, f"describe group {group_id}", group.error_message)
        return GroupDescription(
            group_id=group_id,
            state=group.group_state,
            protocol_type=group.protocol_type,
            protocol=group.protocol_data,
            members=tuple(
                GroupMember(
                    member_id=MemberId(member.member_id),
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    assignment=_read_assignment(group.protocol_type, member.member_assignment),
                )
                for member in group.members
            ),
        )


def _read_assignment(protocol_type: str, assignment: bytes) -> tuple[TopicPartition, ...]:
    """Only consumers' assignments can be read; other kinds of groups keep theirs to themselves."""
    if protocol_type != CONSUMER_PROTOCOL or not assignment:
        return ()
    try:
        read = decode_versioned(ConsumerProtocolAssignment, assignment)
    except ProtocolError:
        return ()
    return tuple(
        TopicPartition(TopicName(topic.topic), PartitionIndex(index))
        for topic in read.assigned_partitions
        for index in topic.partitions
    )
