"""Fetch requests for positions in partitions, and one round of them: every leader asked once.

The round is for callers that keep their own positions. Nothing is retried: a partition's error is handed out as it is,
told apart for the caller, after the router has learned from it.
"""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar
from uuid import UUID

import msgspec

from quorate.client.cluster import Cluster
from quorate.client.connections.connection import Connection, PendingResponse
from quorate.client.errors import Disconnected, error_code
from quorate.client.fetch.batches import (
    AbortedProducer,
    FetchedBatch,
    IsolationLevel,
    check_batches,
    slice_data,
    walk_batches,
)
from quorate.client.routing import PartitionRefused, Route, Unroutable, refusal_event
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import (
    NO_LEADER_EPOCH,
    NO_NODE,
    NO_TOPIC_ID,
    LeaderEpoch,
    NodeId,
    Offset,
    ProducerId,
    TopicPartition,
)
from quorate.protocol.errors import ProtocolError
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

#: From here on topics are named by their ids only.
TOPIC_ID_VERSION: Final = 13
#: From here on the broker compares what was fetched last with its log, and says where they part.
DIVERGING_EPOCH_VERSION: Final = 12
MAX_WAIT_MS: Final = 500
#: What a fetch of many partitions may bring at most, whatever each of them may.
MAX_INT32: Final = 2**31 - 1


class Position(Protocol):
    """Where to go on in one partition."""

    @property
    def name(self) -> TopicPartition: ...
    @property
    def next_offset(self) -> Offset: ...
    @property
    def last_fetched_epoch(self) -> LeaderEpoch: ...
    @property
    def max_bytes(self) -> int: ...


P = TypeVar("P", bound=Position)


def version_ceiling(routed: Sequence[tuple[Position, Route]]) -> int | None:
    has_all_ids = all(route.topic_id != NO_TOPIC_ID for _, route in routed)
    return None if has_all_ids else TOPIC_ID_VERSION - 1


def fetch_request(
    routed: Sequence[tuple[Position, Route]],
    version: int,
    *,
    isolation: IsolationLevel,
    rack: str,
    max_bytes: int,
    max_wait_ms: int = MAX_WAIT_MS,
    min_bytes: int = 1,
) -> FetchRequest:
    compares_epochs = version >= DIVERGING_EPOCH_VERSION
    topics: dict[tuple[str, UUID], list[FetchPartition]] = {}
    for position, route in routed:
        topics.setdefault((position.name.topic, route.topic_id), []).append(
            FetchPartition(
                partition=position.name.partition,
                current_leader_epoch=route.leader_epoch,
                fetch_offset=position.next_offset,
                last_fetched_epoch=position.last_fetched_epoch if compares_epochs else NO_LEADER_EPOCH,
                partition_max_bytes=min(position.max_bytes, MAX_INT32),
            )
        )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=min(max(max_bytes, *(position.max_bytes for position, _ in routed)), MAX_INT32),
        isolation_level=isolation,
        topics=[
            FetchTopic(topic=name, topic_id=topic_id, partitions=partitions)
            for (name, topic_id), partitions in topics.items()
        ],
        rack_id=rack,
    )


def match_answer(
    routed: Sequence[tuple[P, Route]], answer: FetchResponse, version: int
) -> Iterator[tuple[P, Route, PartitionData]]:
    """Each part of the answer with the position that asked for it. What was left out will be asked for again."""
    by_id = version >= TOPIC_ID_VERSION
    asked: dict[tuple[UUID | str, int], tuple[P, Route]] = {
        (route.topic_id if by_id else position.name.topic, position.name.partition): (position, route)
        for position, route in routed
    }
    for topic in answer.responses:
        for part in topic.partitions:
            found = asked.get((topic.topic_id if by_id else topic.topic, part.partition_index))
            if found is not None:
                yield *found, part


class ReadPosition(msgspec.Struct, frozen=True, kw_only=True):
    name: TopicPartition
    next_offset: Offset
    last_fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH
    max_bytes: int = 1024 * 1024


class DivergingEpoch(msgspec.Struct, frozen=True):
    """Where the log and what was read before diverge: the log was truncated since."""

    leader_epoch: LeaderEpoch
    end_offset: Offset


class PartitionFetch(msgspec.Struct, frozen=True, kw_only=True):
    name: TopicPartition
    #: ``NETWORK_EXCEPTION`` where the broker could not be asked; ``message`` says why.
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    diverging_epoch: DivergingEpoch | None = None
    #: Whole batches back to back, checked; from the one that holds the position on. Valid until the result is released.
    data: memoryview = msgspec.field(default_factory=lambda: memoryview(b""))
    batches: Sequence[FetchedBatch] = ()
    high_watermark: Offset = Offset(-1)
    last_stable_offset: Offset = Offset(-1)
    log_start_offset: Offset = Offset(-1)
    aborted_transactions: Sequence[AbortedProducer] = ()
    node_id: NodeId = NO_NODE
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


class FetchResult:
    """What all leaders sent. Release it, or leave its ``with`` block, so that the memory can be used again."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, PartitionFetch] = {}
        self._flights: list[tuple[Connection, PendingResponse[FetchResponse]]] = []

    def hold(self, connection: Connection, pending: PendingResponse[FetchResponse]) -> None:
        self._flights.append((connection, pending))

    def release(self) -> None:
        for found in self.partitions.values():
            found.data.release()
        for connection, pending in self._flights:
            connection.release(pending)
        self._flights.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


RoutedPosition = tuple[ReadPosition, Route]


def fetch_once(
    cluster: Cluster,
    positions: Sequence[ReadPosition],
    *,
    isolation: IsolationLevel,
    max_bytes: int,
    max_wait_ms: int,
    min_bytes: int,
) -> FetchResult:
    """Ask all leaders at once and wait for all of them."""
    cluster.want({position.name.topic for position in positions})
    cluster.refresh_if_due()
    result = FetchResult()
    in_flight = []
    for group in _by_broker(cluster, positions, result):
        try:
            with cluster.noticing_loss(group[0][1].node_id):
                connection = cluster.connection_to(group[0][1].address)
                version = connection.versions.choose(FetchRequest, ceiling=version_ceiling(group))
                request = fetch_request(
                    group,
                    version,
                    isolation=isolation,
                    rack="",
                    max_bytes=max_bytes,
                    max_wait_ms=max_wait_ms,
                    min_bytes=min_bytes,
                )
                in_flight.append((group, connection, connection.send(request, FetchResponse, version, pooled=True)))
        except (Disconnected, ProtocolError) as error:
            _not_reached(group, error, result)
    for group, connection, pending in in_flight:
        try:
            with cluster.noticing_loss(group[0][1].node_id):
                answer = connection.wait(pending)
        except (Disconnected, ProtocolError) as error:
            _not_reached(group, error, result)
        else:
            result.hold(connection, pending)
            for position, route, part in match_answer(group, answer, pending.version):
                result.partitions[position.name] = _read(cluster, position, route, part, answer)
    return result


def _by_broker(cluster: Cluster, positions: Sequence[ReadPosition], result: FetchResult) -> list[list[RoutedPosition]]:
    groups: dict[NodeId, list[RoutedPosition]] = {}
    for position in positions:
        route = cluster.route(position.name)
        if isinstance(route, Unroutable):
            cluster.tell(PartitionRefused(cluster.clock.now_ms(), position.name, route.code))
            result.partitions[position.name] = PartitionFetch(
                name=position.name, error=route.code, message=route.reason
            )
        else:
            groups.setdefault(route.node_id, []).append((position, route))
    return list(groups.values())


def _read(
    cluster: Cluster, position: ReadPosition, route: Route, part: PartitionData, answer: FetchResponse
) -> PartitionFetch:
    code = error_code(part.error_code)
    if code is not ErrorCode.NONE:
        now_ms = cluster.clock.now_ms()
        cluster.tell(refusal_event(now_ms, position.name, code, part.current_leader, answer.node_endpoints))
        return PartitionFetch(name=position.name, error=code, node_id=route.node_id, leader_epoch=route.leader_epoch)
    records = part.records if isinstance(part.records, memoryview) else memoryview(b"")
    batches = [batch for batch in walk_batches(records) if batch.last_offset >= position.next_offset]
    data, batches = slice_data(records, batches)
    check_batches(data, batches)
    diverging = part.diverging_epoch
    return PartitionFetch(
        name=position.name,
        diverging_epoch=(
            DivergingEpoch(LeaderEpoch(diverging.epoch), Offset(diverging.end_offset))
            if diverging.end_offset >= 0
            else None
        ),
        data=data,
        batches=batches,
        high_watermark=Offset(part.high_watermark),
        last_stable_offset=Offset(part.last_stable_offset),
        log_start_offset=Offset(part.log_start_offset),
        aborted_transactions=[
            AbortedProducer(ProducerId(aborted.producer_id), Offset(aborted.first_offset))
            for aborted in part.aborted_transactions or ()
        ],
        node_id=route.node_id,
        leader_epoch=route.leader_epoch,
    )


def _not_reached(group: Sequence[RoutedPosition], error: Exception, result: FetchResult) -> None:
    for position, route in group:
        result.partitions[position.name] = PartitionFetch(
            name=position.name,
            error=ErrorCode.NETWORK_EXCEPTION,
            message=str(error),
            node_id=route.node_id,
            leader_epoch=route.leader_epoch,
        )
