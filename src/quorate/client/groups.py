"""Consumer groups: listed, described, deleted."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from quorate.client.answers import check
from quorate.client.cluster import Cluster
from quorate.client.cluster_metadata import Broker
from quorate.client.coordinators import Coordinators
from quorate.client.errors import UnsupportedApi
from quorate.client.group_offsets import CommittedOffset, GroupOffsets
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import GroupId, MemberId, PartitionIndex, TopicName, TopicPartition
from quorate.protocol.codec import decode_versioned
from quorate.protocol.errors import ProtocolError
from quorate.protocol.messages import consumer_group_describe, describe_groups
from quorate.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from quorate.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from quorate.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

CONSUMER_PROTOCOL = "consumer"


class ListedGroup(msgspec.Struct, frozen=True, kw_only=True):
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

    def list(self) -> Sequence[ListedGroup]:
        """Every group, from all brokers: each knows those that it coordinates."""
        return self._cluster.retry("ListGroups", self._list)

    def describe(self, group_ids: Iterable[str]) -> dict[GroupId, GroupDescription]:
        """One that does not exist is described as "Dead"."""
        return {GroupId(group_id): self._describe(GroupId(group_id)) for group_id in group_ids}

    def delete(self, group_ids: Iterable[str]) -> None:
        for group_id in group_ids:
            request = DeleteGroupsRequest(groups_names=[group_id])

            def ask(coordinator: Broker, request: DeleteGroupsRequest = request) -> None:
                answer = self._cluster.ask_node(coordinator, request, DeleteGroupsResponse)
                for result in answer.results:
                    check(result.error_code, f"delete group {result.group_id}")

            self._coordinators.call(GroupId(group_id), "DeleteGroups", ask)

    def offsets(self, group_id: str, *, require_stable: bool = False) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed, for all its partitions."""
        return self._offsets.fetch(GroupId(group_id), require_stable=require_stable)

    def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit from outside, which the coordinator allows while the group has no members."""
        self._offsets.commit(GroupId(group_id), offsets)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        self._offsets.delete(GroupId(group_id), partitions)

    def _list(self) -> Sequence[ListedGroup]:
        found: dict[GroupId, ListedGroup] = {}
        for broker in self._cluster.brokers().values():
            answer = self._cluster.ask_node(broker, ListGroupsRequest(), ListGroupsResponse)
            check(answer.error_code, f"list the groups of broker {broker.node_id}")
            for group in answer.groups:
                group_id = GroupId(group.group_id)
                found[group_id] = ListedGroup(
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

    def _describe_consumer(self, coordinator: Broker, group_id: GroupId) -> GroupDescription:
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

    def _describe_classic(self, coordinator: Broker, group_id: GroupId) -> GroupDescription:
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
