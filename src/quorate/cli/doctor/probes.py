"""Trying claims on one node: for each partition a fetch, a write that nobody takes, and a request for a group.

Nothing is left behind. The write is a batch whose checksum is wrong: a broker looks at it after the question whether it
leads the partition, and none stores it. An unknown producer id would not do: since KIP-360 brokers let it begin with
any sequence. The group is only described, and has to exist no more than its name.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, groupby
from typing import Final

from quorate.cli.doctor.observations import Attempt, FoundCoordinator, LeaderClaim, Trial
from quorate.client.connections.connection import Connection
from quorate.client.errors import error_code
from quorate.coordination.core.partitioning import partition_for
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import (
    GroupId,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicName,
    TopicPartition,
)
from quorate.kernel.topic_names import CONSUMER_OFFSETS, INTERNAL_TOPICS
from quorate.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from quorate.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quorate.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quorate.records.batch import CRC_OFFSET, CRC_START
from quorate.records.builder import build_batch
from quorate.records.record import Record

Claims = Mapping[TopicPartition, LeaderClaim]

_PARTITIONS_PER_REQUEST: Final = 500
_CONSUMER: Final = -1
_LATEST: Final = -1
#: From version 11 on followers serve consumers too (KIP-392), so that an answer would say nothing about leadership.
_FETCH_CEILING: Final = 10
#: The newest version that names topics by name.
_PRODUCE_CEILING: Final = 12
_PRODUCE_HINTS_FROM: Final = 10
_MANY_KEYS_FROM: Final = 4
_LEADER_ALONE: Final = 1
_WRITE_TIMEOUT_MS: Final = 1_000
#: No broker hands out such an id.
_NOBODY: Final = ProducerId(2**62)


def try_claims(connection: Connection, node_id: NodeId, claims: Claims, *, writes: bool) -> Iterator[Trial]:
    """Try them all on the node at the other end, whether it is named as leader or not."""
    names = sorted(claims)
    for start in range(0, len(names), _PARTITIONS_PER_REQUEST):
        some = {name: claims[name] for name in names[start : start + _PARTITIONS_PER_REQUEST]}
        yield from _try_fetch(connection, node_id, some)
        writable = {name: claim for name, claim in some.items() if name.topic not in INTERNAL_TOPICS}
        if writes and writable:
            yield from _try_write(connection, node_id, writable)
    groups = groups_by_partition(claims)
    if groups:
        yield from _try_groups(connection, node_id, claims, groups)


def groups_by_partition(claims: Claims) -> dict[TopicPartition, GroupId]:
    """A group's name for each partition of __consumer_offsets; none while that topic is not there."""
    partitions = {name for name in claims if name.topic == CONSUMER_OFFSETS}
    found: dict[TopicPartition, GroupId] = {}
    numbers = count()
    while len(found) < len(partitions):
        group_id = GroupId(f"quorate-doctor-{next(numbers)}")
        partition = TopicPartition(CONSUMER_OFFSETS, partition_for(group_id, len(partitions)))
        if partition not in partitions:
            return {}  # Partitions are missing from the answer: where a group belongs cannot be told.
        found.setdefault(partition, group_id)
    return found


def find_coordinators(
    connection: Connection, node_id: NodeId, groups: Mapping[TopicPartition, GroupId]
) -> Iterator[FoundCoordinator]:
    version = connection.versions.choose(FindCoordinatorRequest)
    asked = {group_id: partition for partition, group_id in groups.items()}
    requests = (
        [FindCoordinatorRequest(coordinator_keys=list(asked))]
        if version >= _MANY_KEYS_FROM
        else [FindCoordinatorRequest(key=group_id) for group_id in asked]
    )
    keys = iter(asked)
    for request in requests:
        answer = connection.ask(request, FindCoordinatorResponse, version)
        for found in answer.coordinators if version >= _MANY_KEYS_FROM else [answer]:
            group_id = GroupId(found.key) if isinstance(found, Coordinator) else next(keys)
            yield FoundCoordinator(
                node_id=node_id,
                group_id=group_id,
                partition=asked[group_id],
                outcome=error_code(found.error_code),
                coordinator=NodeId(found.node_id),
            )


def _try_fetch(connection: Connection, node_id: NodeId, claims: Claims) -> Iterator[Trial]:
    ends = _latest_offsets(connection, claims)
    request = FetchRequest(
        max_bytes=1,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=name.partition,
                        current_leader_epoch=claims[name].leader_epoch,
                        fetch_offset=ends.get(name, 0),
                        partition_max_bytes=1,
                    )
                    for name in names
                ],
            )
            for topic, names in _by_topic(claims)
        ],
    )
    version = connection.versions.choose(FetchRequest, ceiling=_FETCH_CEILING)
    answer = connection.ask(request, FetchResponse, version)
    for topic in answer.responses:
        for part in topic.partitions:
            name = TopicPartition(TopicName(topic.topic), PartitionIndex(part.partition_index))
            yield _trial(node_id, Attempt.FETCH, name, claims, part.error_code)


def _latest_offsets(connection: Connection, claims: Claims) -> dict[TopicPartition, Offset]:
    """Where the fetch is to start, so that it brings nothing: of those partitions that the node leads."""
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsPartition(partition_index=name.partition, timestamp=_LATEST) for name in names],
            )
            for topic, names in _by_topic(claims)
        ],
    )
    answer = connection.ask(request, ListOffsetsResponse, connection.versions.choose(ListOffsetsRequest))
    return {
        TopicPartition(TopicName(topic.name), PartitionIndex(part.partition_index)): Offset(part.offset)
        for topic in answer.topics
        for part in topic.partitions
        if part.error_code == ErrorCode.NONE
    }


def _try_write(connection: Connection, node_id: NodeId, claims: Claims) -> Iterator[Trial]:
    batch = unacceptable_batch()
    request = ProduceRequest(
        acks=_LEADER_ALONE,
        timeout_ms=_WRITE_TIMEOUT_MS,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=name.partition, records=batch) for name in names]
            )
            for topic, names in _by_topic(claims)
        ],
    )
    version = connection.versions.choose(ProduceRequest, ceiling=_PRODUCE_CEILING)
    answer = connection.ask(request, ProduceResponse, version)
    for topic in answer.responses:
        for part in topic.partition_responses:
            name = TopicPartition(TopicName(topic.name), PartitionIndex(part.index))
            hint = _hint(part.current_leader)
            has_room = version >= _PRODUCE_HINTS_FROM
            yield _trial(node_id, Attempt.WRITE, name, claims, part.error_code, hint=hint, has_room_for_hint=has_room)


def unacceptable_batch() -> bytes:
    """One record of an idempotent producer that does not exist, under a checksum that is wrong in every bit."""
    batch = bytearray(
        build_batch(
            [Record(offset=Offset(0), timestamp=0, key=b"quorate-doctor", value=b"")],
            producer_id=_NOBODY,
            producer_epoch=ProducerEpoch(0),
            base_sequence=0,
        )
    )
    for position in range(CRC_OFFSET, CRC_START):
        batch[position] ^= 0xFF
    return bytes(batch)


def _try_groups(
    connection: Connection, node_id: NodeId, claims: Claims, groups: Mapping[TopicPartition, GroupId]
) -> Iterator[Trial]:
    request = DescribeGroupsRequest(groups=list(groups.values()))
    answer = connection.ask(request, DescribeGroupsResponse, connection.versions.choose(DescribeGroupsRequest))
    partitions = {group_id: partition for partition, group_id in groups.items()}
    for group in answer.groups:
        partition = partitions[GroupId(group.group_id)]
        yield _trial(node_id, Attempt.GROUP_REQUEST, partition, claims, group.error_code)


def _trial(
    node_id: NodeId,
    attempt: Attempt,
    partition: TopicPartition,
    claims: Claims,
    code: int,
    *,
    hint: LeaderClaim | None = None,
    has_room_for_hint: bool = False,
) -> Trial:
    return Trial(
        node_id=node_id,
        attempt=attempt,
        partition=partition,
        claim=claims[partition],
        outcome=error_code(code),
        hint=hint,
        has_room_for_hint=has_room_for_hint,
    )


def _hint(leader: LeaderIdAndEpoch) -> LeaderClaim | None:
    return None if leader.leader_id < 0 else LeaderClaim(NodeId(leader.leader_id), LeaderEpoch(leader.leader_epoch))


def _by_topic(claims: Claims) -> Iterator[tuple[TopicName, Sequence[TopicPartition]]]:
    for topic, names in groupby(sorted(claims), key=lambda name: name.topic):
        yield topic, list(names)
