"""Ranges fetched from brokers that do what a test tells them to."""

import threading
from collections.abc import Iterator
from uuid import UUID

import pytest

from quorate.client.errors import LogTruncated, OffsetOutOfRange, PartitionUnavailable, TopicReplaced
from quorate.client.fetch.batches import FetchedBatches, FetchRange, RangeFailed
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch, Offset, PartitionIndex, TopicName
from quorate.protocol.apis import ApiKey
from quorate.protocol.frames import RequestHeader
from quorate.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from quorate.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.messages.offset_for_leader_epoch import EpochEndOffset as OldEpochEndOffset
from quorate.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from quorate.protocol.schema import Request
from quorate.records.errors import CorruptBatch
from tests.unit.client.batches import log
from tests.unit.client.clock import FakeClock
from tests.unit.client.conftest import TOPIC_ID, OpenClient
from tests.unit.client.fake_broker import Answer, FakeCluster
from tests.unit.client.fake_fetches import (
    END,
    SPANS,
    TOPIC,
    always,
    asked,
    failure,
    fetched,
    found,
    records_from,
    serve,
)


def test_the_leader_is_asked_with_its_epoch_and_nobody_else(cluster: FakeCluster, client: KafkaClient) -> None:
    serve(cluster, always)
    assert fetched(client) == SPANS
    assert {partition.current_leader_epoch for partition in asked(cluster, 100)} == {3}
    assert asked(cluster, 7) == asked(cluster, 4001) == []


def test_what_was_fetched_last_is_told_so_that_truncation_is_found(cluster: FakeCluster, client: KafkaClient) -> None:
    serve(cluster, always)
    fetched(client, last_fetched_epoch=LeaderEpoch(2))
    assert [partition.last_fetched_epoch for partition in asked(cluster, 100)] == [2, 3, 3, 3]


def test_the_next_request_is_on_its_way_while_the_caller_works(cluster: FakeCluster, client: KafkaClient) -> None:
    serve(cluster, always)
    pieces = client.fetch_range(TOPIC, 0, 0, END)
    next(pieces)
    connections = client._cluster._connections  # The one place where a request in flight can be seen from outside.
    assert connections.to(cluster.brokers[100].address).in_flight == 1
    pieces.close()  # type: ignore[attr-defined]


def test_both_leaders_are_asked_at_once(cluster: FakeCluster, client: KafkaClient) -> None:
    serve(cluster, always)
    ranges = [
        FetchRange(
            topic=TopicName(TOPIC), partition=PartitionIndex(index), start_offset=Offset(0), end_offset=Offset(END)
        )
        for index in (0, 1)
    ]
    outcomes = [outcome for outcome in client.fetch_ranges(ranges) if isinstance(outcome, FetchedBatches)]
    assert {(outcome.range.partition, outcome.node_id) for outcome in outcomes} == {(0, 100), (1, 4001)}
    assert sum(outcome.is_last for outcome in outcomes) == 2


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
    ],
)
def test_the_new_leader_is_found_in_fresh_metadata(cluster: FakeCluster, client: KafkaClient, code: ErrorCode) -> None:
    def handler(node_id: int, wanted: FetchPartition) -> PartitionData:
        if wanted.fetch_offset < 20:
            return records_from(wanted)
        if node_id == 100:
            cluster.leaders[TOPIC][0] = (7, 4)
            return found(wanted, error_code=code)
        return records_from(wanted)

    serve(cluster, handler)
    assert fetched(client) == SPANS
    assert {partition.fetch_offset for partition in asked(cluster, 7)} == {20, 30}
    assert client.leaders_followed == 1


def test_a_hint_is_followed_without_asking_for_metadata(
    cluster: FakeCluster, client: KafkaClient, clock: FakeClock
) -> None:
    """KIP-951; the new leader is a broker that the client has never heard of."""
    with FakeCluster(55) as newcomer:
        serve(newcomer, always)
        address = newcomer.brokers[55].address
        serve(
            cluster,
            lambda node_id, wanted: found(
                wanted,
                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                current_leader=LeaderIdAndEpoch(leader_id=55, leader_epoch=9),
            ),
            endpoints=(NodeEndpoint(node_id=55, host=address.host, port=address.port),),
        )
        assert fetched(client) == SPANS
        assert {partition.current_leader_epoch for partition in asked(newcomer, 55)} == {9}
    refreshes = [len(broker.requests(MetadataRequest)) for broker in cluster.brokers.values()]
    assert sum(refreshes) == 1
    assert clock.slept_ms == []


def test_a_lost_connection_leads_to_the_new_leader(cluster: FakeCluster, client: KafkaClient) -> None:
    serve(cluster, always)

    def die(request: Request, header: RequestHeader) -> Answer:
        cluster.leaders[TOPIC][0] = (4001, 4)
        return None

    cluster.brokers[100].handlers[FetchRequest] = die
    assert fetched(client) == SPANS
    assert asked(cluster, 4001)


def test_one_error_at_the_deadline_names_partition_leader_and_cause(
    cluster: FakeCluster, client: KafkaClient, clock: FakeClock
) -> None:
    serve(cluster, lambda node_id, wanted: found(wanted, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    error = failure(client)
    assert isinstance(error, PartitionUnavailable)
    assert (error.partition, error.leader_id) == ((TOPIC, 0), 100)
    for part in ("orders-0", "leader 100", str(cluster.brokers[100].address), "NOT_LEADER_OR_FOLLOWER"):
        assert part in str(error)
    assert 55_000 <= sum(clock.slept_ms) <= 65_000
    assert max(clock.slept_ms) <= 1_200


def test_progress_puts_off_the_deadline(cluster: FakeCluster, client: KafkaClient, clock: FakeClock) -> None:
    refused: set[int] = set()

    def handler(node_id: int, wanted: FetchPartition) -> PartitionData:
        if wanted.fetch_offset not in refused:
            refused.add(wanted.fetch_offset)
            clock.advance(50_000)
            return found(wanted, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return records_from(wanted)

    serve(cluster, handler)
    assert fetched(client) == SPANS


def test_a_truncated_log_is_told_from_all_else(cluster: FakeCluster, client: KafkaClient) -> None:
    serve(
        cluster,
        lambda node_id, wanted: (
            records_from(wanted)
            if wanted.fetch_offset < 20
            else found(wanted, diverging_epoch=EpochEndOffset(epoch=2, end_offset=15))
        ),
    )
    error = failure(client)
    assert isinstance(error, LogTruncated)
    assert (error.offset, error.diverging_epoch, error.diverging_end_offset) == (20, 2, 15)


@pytest.fixture
def old_cluster() -> Iterator[FakeCluster]:
    """Fetch 11, the last version without diverging epochs, and no topic ids."""
    with FakeCluster(7, 100, versions={ApiKey.FETCH: 11, ApiKey.METADATA: 9}) as running:
        running.leaders = {TOPIC: {0: (7, 3)}}
        yield running


@pytest.mark.parametrize(("end_offset", "is_truncated"), [(20, False), (19, True)])
def test_before_fetch_12_the_end_of_the_epoch_is_asked_for_after_a_change(
    old_cluster: FakeCluster, open_client: OpenClient, end_offset: int, is_truncated: bool
) -> None:
    def handler(node_id: int, wanted: FetchPartition) -> PartitionData:
        if node_id == 7 and wanted.fetch_offset == 20:
            old_cluster.leaders[TOPIC][0] = (100, 4)
            return found(wanted, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return records_from(wanted)

    def epoch_end(node_id: int, request: Request, header: RequestHeader) -> Answer:
        end = OldEpochEndOffset(partition=0, leader_epoch=3, end_offset=end_offset)
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic=TOPIC, partitions=[end])])

    serve(old_cluster, handler)
    old_cluster.handle(OffsetForLeaderEpochRequest, epoch_end)
    client = open_client(old_cluster)
    if is_truncated:
        assert isinstance(failure(client), LogTruncated)
    else:
        assert fetched(client) == SPANS
    assert len(old_cluster.brokers[100].requests(OffsetForLeaderEpochRequest)) == 1


def bounds(cluster: FakeCluster, start: int, end: int) -> None:
    def answer(node_id: int, request: Request, header: RequestHeader) -> Answer:
        assert isinstance(request, ListOffsetsRequest)
        wanted = request.topics[0].partitions[0]
        offset = end if wanted.timestamp == -1 else start
        listed = ListOffsetsPartitionResponse(partition_index=wanted.partition_index, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[listed])])

    cluster.handle(ListOffsetsRequest, answer)


def test_an_offset_below_the_log_start_comes_with_the_bounds(cluster: FakeCluster, client: KafkaClient) -> None:
    serve(cluster, lambda node_id, wanted: found(wanted, error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
    bounds(cluster, 12, 40)
    error = failure(client)
    assert isinstance(error, OffsetOutOfRange)
    assert (error.is_below_log_start, error.log_start_offset, error.log_end_offset) == (True, 12, 40)


def test_an_offset_that_is_there_after_all_is_fetched_again(cluster: FakeCluster, client: KafkaClient) -> None:
    answers = iter([ErrorCode.OFFSET_OUT_OF_RANGE])

    def handler(node_id: int, wanted: FetchPartition) -> PartitionData:
        code = next(answers, ErrorCode.NONE)
        return records_from(wanted) if code is ErrorCode.NONE else found(wanted, error_code=code)

    serve(cluster, handler)
    bounds(cluster, 0, 40)
    assert fetched(client) == SPANS


def test_a_corrupt_batch_is_never_handed_out(cluster: FakeCluster, client: KafkaClient) -> None:
    def handler(node_id: int, wanted: FetchPartition) -> PartitionData:
        data = bytearray(log(*[span for span in SPANS if span[1] >= wanted.fetch_offset][:1], epoch=3))
        if wanted.fetch_offset == 20:
            data[-1] ^= 1
        return found(wanted, records=bytes(data))

    serve(cluster, handler)
    seen: list[int] = []
    with pytest.raises(CorruptBatch, match=r"orders-0.*node 100"):
        seen.extend(piece.next_offset for piece in client.fetch_range(TOPIC, 0, 0, END))
    assert seen == [10, 20]


def test_a_partial_batch_alone_is_asked_for_again_with_more_room(cluster: FakeCluster, client: KafkaClient) -> None:
    """Brokers that keep to the limit even for the first batch."""

    def handler(node_id: int, wanted: FetchPartition) -> PartitionData:
        data = log(*[span for span in SPANS if span[1] >= wanted.fetch_offset][:1], epoch=3)
        return found(wanted, records=data[: wanted.partition_max_bytes])

    serve(cluster, handler)
    assert fetched(client, max_bytes=40) == SPANS


def test_an_answer_that_ends_before_the_offset_is_asked_for_again_with_more_room(
    cluster: FakeCluster, client: KafkaClient
) -> None:
    """Brokers that start at the last entry of their index, and keep to the limit."""
    whole = log(*SPANS, epoch=3)
    serve(cluster, lambda node_id, wanted: found(wanted, records=whole[: wanted.partition_max_bytes]))
    assert fetched(client, max_bytes=len(whole) // 3) == SPANS


def test_an_answer_that_leaves_a_partition_out_is_asked_again(cluster: FakeCluster, client: KafkaClient) -> None:
    """As a broker does that throttles."""
    calls: list[int] = []

    def answer(node_id: int, request: Request, header: RequestHeader) -> Answer:
        assert isinstance(request, FetchRequest)
        calls.append(node_id)
        if len(calls) % 2:
            return FetchResponse(throttle_time_ms=1)
        (topic,) = request.topics
        parts = [records_from(partition) for partition in topic.partitions]
        return FetchResponse(
            responses=[FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=parts)]
        )

    cluster.handle(FetchRequest, answer)
    assert fetched(client) == SPANS
    assert len(calls) == 8


def test_a_compaction_gap_up_to_the_end_ends_the_range(cluster: FakeCluster, client: KafkaClient) -> None:
    serve(
        cluster,
        lambda node_id, wanted: records_from(wanted) if wanted.fetch_offset < 20 else found(wanted),
    )
    bounds(cluster, 0, END)
    pieces = list(client.fetch_range(TOPIC, 0, 0, END))
    assert [(piece.next_offset, piece.is_last) for piece in pieces] == [(10, False), (20, False), (END, True)]


def test_a_gap_that_leads_past_the_end_ends_the_range(cluster: FakeCluster, client: KafkaClient) -> None:
    serve(cluster, always)
    pieces = list(client.fetch_range(TOPIC, 0, 0, 15))
    assert [(piece.next_offset, piece.is_last) for piece in pieces] == [(10, False), (10, True)]


def test_another_topic_of_the_same_name_ends_the_range(cluster: FakeCluster, client: KafkaClient) -> None:
    def handler(node_id: int, wanted: FetchPartition) -> PartitionData:
        if wanted.fetch_offset < 20:
            return records_from(wanted)
        cluster.topic_ids[TOPIC] = UUID(int=8)
        cluster.leaders[TOPIC][0] = (100, 0)
        return found(wanted, error_code=ErrorCode.UNKNOWN_TOPIC_ID)

    serve(cluster, handler)
    error = failure(client)
    assert isinstance(error, TopicReplaced)
    assert (error.expected_id, error.found_id) == (TOPIC_ID, UUID(int=8))


def test_an_error_that_cannot_get_better_is_told_at_once(
    cluster: FakeCluster, client: KafkaClient, clock: FakeClock
) -> None:
    serve(cluster, lambda node_id, wanted: found(wanted, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    error = failure(client)
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert clock.slept_ms == []


def test_one_range_that_fails_stops_no_other(cluster: FakeCluster, client: KafkaClient) -> None:
    cluster.leaders[TOPIC][1] = (100, 3)
    serve(
        cluster,
        lambda node_id, wanted: (
            found(wanted, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if wanted.partition == 0
            else records_from(wanted)
        ),
    )
    ranges = [
        FetchRange(
            topic=TopicName(TOPIC), partition=PartitionIndex(index), start_offset=Offset(0), end_offset=Offset(END)
        )
        for index in (0, 1)
    ]
    outcomes = list(client.fetch_ranges(ranges))
    assert [outcome.range.partition for outcome in outcomes if isinstance(outcome, RangeFailed)] == [0]
    assert sum(outcome.batch_count for outcome in outcomes if isinstance(outcome, FetchedBatches)) == len(SPANS)


def test_two_ranges_of_one_partition(cluster: FakeCluster, client: KafkaClient) -> None:
    serve(cluster, always)
    ranges = [
        FetchRange(
            topic=TopicName(TOPIC),
            partition=PartitionIndex(0),
            start_offset=Offset(start),
            end_offset=Offset(start + 20),
        )
        for start in (20, 0)
    ]
    found_spans = [
        (batch.base_offset, batch.last_offset)
        for outcome in client.fetch_ranges(ranges)
        if isinstance(outcome, FetchedBatches)
        for batch in outcome.walk()
    ]
    assert sorted(found_spans) == SPANS


def test_threads_fetch_over_one_connection(cluster: FakeCluster, client: KafkaClient) -> None:
    cluster.leaders[TOPIC] = dict.fromkeys(range(6), (100, 3))
    serve(cluster, always)
    results: dict[int, list[tuple[int, int]]] = {}

    def work(index: int) -> None:
        results[index] = [
            (batch.base_offset, batch.last_offset)
            for piece in client.fetch_range(TOPIC, index, 0, END)
            for batch in piece.walk()
        ]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == dict.fromkeys(range(6), SPANS)
    assert cluster.brokers[100].connections == 1


def test_a_partition_that_others_left_no_room_for_is_not_taken_for_empty(
    cluster: FakeCluster, client: KafkaClient
) -> None:
    cluster.leaders[TOPIC] = dict.fromkeys(range(3), (100, 3))

    def answer(node_id: int, request: Request, header: RequestHeader) -> Answer:
        assert isinstance(request, FetchRequest)
        (topic,) = request.topics
        first, *others = topic.partitions
        parts = [records_from(first), *(found(wanted) for wanted in others)]
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=topic.topic_id, partitions=parts)])

    cluster.handle(FetchRequest, answer)
    ranges = [
        FetchRange(
            topic=TopicName(TOPIC), partition=PartitionIndex(index), start_offset=Offset(0), end_offset=Offset(END)
        )
        for index in range(3)
    ]
    counts = dict.fromkeys(range(3), 0)
    for outcome in client.fetch_ranges(ranges):
        assert isinstance(outcome, FetchedBatches)
        counts[outcome.range.partition] += outcome.batch_count
    assert counts == dict.fromkeys(range(3), len(SPANS))
