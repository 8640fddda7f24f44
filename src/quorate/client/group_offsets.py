"""The offsets that consumer groups have committed: fetched, committed, deleted, in old and new versions."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from quorate.client.answers import check
from quorate.client.cluster import Cluster
from quorate.client.cluster_metadata import Broker
from quorate.client.coordinators import Coordinators
from quorate.client.leader_calls import by_topic
from quorate.kernel.ids import NO_LEADER_EPOCH, GroupId, LeaderEpoch, Offset, PartitionIndex, TopicName, TopicPartition
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

#: The newest version that still names topics by name.
_NAMES_VERSION: Final = 9
_MANY_GROUPS_VERSION: Final = 8
_STABLE_VERSION: Final = 7


class CommittedOffset(msgspec.Struct, frozen=True, kw_only=True):
    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str | None = ""


class GroupOffsets:
    def __init__(self, cluster: Cluster, coordinators: Coordinators) -> None:
        self._cluster = cluster
        self._coordinators = coordinators

    def fetch(self, group_id: GroupId, *, require_stable: bool) -> dict[TopicPartition, CommittedOffset]:
        def build(version: int) -> OffsetFetchRequest:
            if version >= _MANY_GROUPS_VERSION:
                groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None)]
                return OffsetFetchRequest(groups=groups, require_stable=require_stable)
            is_stable = require_stable and version >= _STABLE_VERSION
            return OffsetFetchRequest(group_id=group_id, topics=None, require_stable=is_stable)

        def ask(coordinator: Broker) -> dict[TopicPartition, CommittedOffset]:
            answer = self._cluster.ask_node_in_version(
                coordinator, OffsetFetchRequest, OffsetFetchResponse, build, ceiling=_NAMES_VERSION
            )
            return _read_offsets(group_id, answer)

        return self._coordinators.call(group_id, "OffsetFetch", ask)

    def commit(self, group_id: GroupId, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
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

        def ask(coordinator: Broker) -> None:
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

        def ask(coordinator: Broker) -> None:
            answer = self._cluster.ask_node(coordinator, request, OffsetDeleteResponse)
            check(answer.error_code, f"delete offsets of group {group_id}")
            for topic in answer.topics:
                for found in topic.partitions:
                    what = f"delete the offset of group {group_id} for partition {topic.name}-{found.partition_index}"
                    check(found.error_code, what)

        self._coordinators.call(group_id, "OffsetDelete", ask)


def _read_offsets(group_id: GroupId, answer: OffsetFetchResponse) -> dict[TopicPartition, CommittedOffset]:
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
                offsets[partition] = CommittedOffset(
                    offset=Offset(found.committed_offset),
                    leader_epoch=LeaderEpoch(found.committed_leader_epoch),
                    metadata=found.metadata,
                )
    return offsets
