"""Where a partition's log starts and ends, and which offset stands at a time or at the end of a leader epoch."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from quorate.client.cluster import Cluster
from quorate.client.errors import error_code
from quorate.client.fetch.batches import IsolationLevel
from quorate.client.leader_calls import LeaderCall, PartitionAnswer, call_leaders, try_call_leaders
from quorate.client.routing import Route
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import EpochEnd, LeaderEpoch, Offset, PartitionIndex, TopicName, TopicPartition
from quorate.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quorate.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
EARLIEST_LOCAL_TIMESTAMP: Final = -4
#: From here on brokers know which part of a log is on their own disks (KIP-405).
_EARLIEST_LOCAL_VERSION: Final = 8
_CONSUMER: Final = -1  # The replica id of somebody who is no replica.


class ListedOffset(msgspec.Struct, frozen=True, kw_only=True):
    #: None where no record is as late as the time that was asked for.
    offset: Offset | None
    #: Of the record at the offset; -1 for the earliest and latest offsets.
    timestamp: int
    #: -1 where the cluster is too old to tell.
    leader_epoch: LeaderEpoch


class Offsets:
    """Calls named ``try_…`` give an answer or an error for each partition; the others raise the first error."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ListedOffset]:
        """Where each log starts."""
        call = self._listing(IsolationLevel.READ_UNCOMMITTED)
        return call_leaders(self._cluster, call, dict.fromkeys(partitions, EARLIEST_TIMESTAMP))

    def try_earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ListedOffset | QuorateError]:
        call = self._listing(IsolationLevel.READ_UNCOMMITTED)
        return try_call_leaders(self._cluster, call, dict.fromkeys(partitions, EARLIEST_TIMESTAMP))

    def earliest_local(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ListedOffset]:
        """Where the part of each log starts that is on its leader's disk; what is before it is in tiered storage.

        ``UNSUPPORTED_VERSION`` where a leader is too old to have any.
        """
        call = self._listing(IsolationLevel.READ_UNCOMMITTED, min_version=_EARLIEST_LOCAL_VERSION)
        return call_leaders(self._cluster, call, dict.fromkeys(partitions, EARLIEST_LOCAL_TIMESTAMP))

    def try_earliest_local(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset | QuorateError]:
        call = self._listing(IsolationLevel.READ_UNCOMMITTED, min_version=_EARLIEST_LOCAL_VERSION)
        return try_call_leaders(self._cluster, call, dict.fromkeys(partitions, EARLIEST_LOCAL_TIMESTAMP))

    def latest(
        self, partitions: Iterable[TopicPartition], isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> dict[TopicPartition, ListedOffset]:
        """Where each log ends for readers: the high watermark, or the last stable offset with ``READ_COMMITTED``."""
        call = self._listing(isolation)
        return call_leaders(self._cluster, call, dict.fromkeys(partitions, LATEST_TIMESTAMP))

    def try_latest(
        self, partitions: Iterable[TopicPartition], isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> dict[TopicPartition, ListedOffset | QuorateError]:
        call = self._listing(isolation)
        return try_call_leaders(self._cluster, call, dict.fromkeys(partitions, LATEST_TIMESTAMP))

    def at_timestamp(
        self,
        timestamps_ms: Mapping[TopicPartition, int],
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, ListedOffset]:
        """The first offset whose record is at or after the time."""
        return call_leaders(self._cluster, self._listing(isolation), timestamps_ms)

    def epoch_ends(self, epochs: Mapping[TopicPartition, LeaderEpoch]) -> dict[TopicPartition, EpochEnd]:
        """Where each leader epoch ends (KIP-101): records of it at or after that offset were cut off."""
        return call_leaders(self._cluster, _EPOCH_CALL, epochs)

    def try_epoch_ends(
        self, epochs: Mapping[TopicPartition, LeaderEpoch]
    ) -> dict[TopicPartition, EpochEnd | QuorateError]:
        return try_call_leaders(self._cluster, _EPOCH_CALL, epochs)

    def _listing(
        self, isolation: IsolationLevel, *, min_version: int = 0
    ) -> LeaderCall[int, ListedOffset, ListOffsetsResponse]:
        def build(routes: list[tuple[Route, int]]) -> ListOffsetsRequest:
            topics: dict[str, list[ListOffsetsPartition]] = {}
            for route, timestamp in routes:
                topics.setdefault(route.partition.topic, []).append(
                    ListOffsetsPartition(
                        partition_index=route.partition.partition,
                        current_leader_epoch=route.leader_epoch,
                        timestamp=timestamp,
                    )
                )
            return ListOffsetsRequest(
                replica_id=_CONSUMER,
                isolation_level=isolation,
                topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
                timeout_ms=self._cluster.config.request_timeout_ms,
            )

        return LeaderCall(
            what="list the offsets of",
            response_type=ListOffsetsResponse,
            build=build,
            read=_read_listed_offsets,
            min_version=min_version,
        )


def _read_listed_offsets(answer: ListOffsetsResponse) -> Iterator[PartitionAnswer[ListedOffset]]:
    for topic in answer.topics:
        for found in topic.partitions:
            yield PartitionAnswer(
                TopicPartition(TopicName(topic.name), PartitionIndex(found.partition_index)),
                error_code(found.error_code),
                ListedOffset(
                    offset=Offset(found.offset) if found.offset >= 0 else None,
                    timestamp=found.timestamp,
                    leader_epoch=LeaderEpoch(found.leader_epoch),
                ),
            )


def _epoch_request(routes: list[tuple[Route, LeaderEpoch]]) -> OffsetForLeaderEpochRequest:
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for route, epoch in routes:
        topics.setdefault(route.partition.topic, []).append(
            OffsetForLeaderPartition(
                partition=route.partition.partition, current_leader_epoch=route.leader_epoch, leader_epoch=epoch
            )
        )
    return OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER,
        topics=[OffsetForLeaderTopic(topic=name, partitions=partitions) for name, partitions in topics.items()],
    )


def _read_epoch_ends(answer: OffsetForLeaderEpochResponse) -> Iterator[PartitionAnswer[EpochEnd]]:
    for topic in answer.topics:
        for found in topic.partitions:
            yield PartitionAnswer(
                TopicPartition(TopicName(topic.topic), PartitionIndex(found.partition)),
                error_code(found.error_code),
                EpochEnd(leader_epoch=LeaderEpoch(found.leader_epoch), end_offset=Offset(found.end_offset)),
            )


_EPOCH_CALL = LeaderCall(
    what="look up a leader epoch of",
    response_type=OffsetForLeaderEpochResponse,
    build=_epoch_request,
    read=_read_epoch_ends,
)
