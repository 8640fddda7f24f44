"""Leaders that have only the end of a log on their own disks, and send nothing when the rest is long in coming."""

from collections.abc import Callable

import pytest

from quorate.client.errors import PartitionUnavailable
from quorate.client.fetch.batches import FetchedBatches, FetchRange
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset, PartitionIndex, TopicName
from quorate.protocol.apis import ApiKey
from quorate.protocol.frames import RequestHeader
from quorate.protocol.messages.fetch import FetchPartition, PartitionData
from quorate.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from quorate.protocol.schema import Request
from tests.unit.client.clock import FakeClock
from tests.unit.client.conftest import OpenClient
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

EARLIEST_LOCAL = -4
LOCAL_START = 30

#: What a broker says when it is asked where its local log starts: the offset, or why it does not tell.
LocalStart = Callable[[int], int | ErrorCode]


def local_starts(cluster: FakeCluster, start_of: LocalStart) -> None:
    def answer(node_id: int, request: Request, header: RequestHeader) -> Answer:
        assert isinstance(request, ListOffsetsRequest)
        wanted = request.topics[0].partitions[0]
        assert (wanted.timestamp, header.api_version >= 8) == (EARLIEST_LOCAL, True)
        start = start_of(node_id)
        code, offset = (start, -1) if isinstance(start, ErrorCode) else (ErrorCode.NONE, start)
        listed = ListOffsetsPartitionResponse(
            partition_index=wanted.partition_index, offset=offset, error_code=code, leader_epoch=0
        )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[listed])])

    cluster.handle(ListOffsetsRequest, answer)


def nothing_from(offset: int, *, times: int | None = None) -> Callable[[int, FetchPartition], PartitionData]:
    """Records before the offset; from there on so often nothing, and no error, before they come."""
    answered: list[int] = []

    def handler(node_id: int, wanted: FetchPartition) -> PartitionData:
        if wanted.fetch_offset < offset or (times is not None and len(answered) >= times):
            return records_from(wanted)
        answered.append(wanted.fetch_offset)
        return found(wanted)

    return handler


@pytest.mark.parametrize("times", [1, 2, 5])
def test_nothing_from_tiered_storage_means_not_yet(
    cluster: FakeCluster, client: KafkaClient, clock: FakeClock, times: int
) -> None:
    serve(cluster, nothing_from(10, times=times))
    local_starts(cluster, lambda node_id: LOCAL_START)
    assert fetched(client) == SPANS
    assert len([slept_ms for slept_ms in clock.slept_ms if slept_ms > 0]) == times


def test_tiered_storage_that_never_answers_is_one_error_at_the_deadline_and_no_gap(
    cluster: FakeCluster, client: KafkaClient, clock: FakeClock
) -> None:
    serve(cluster, nothing_from(20))
    local_starts(cluster, lambda node_id: LOCAL_START)
    seen: list[int] = []
    with pytest.raises(PartitionUnavailable) as caught:
        seen.extend(piece.next_offset for piece in client.fetch_range(TOPIC, 0, 0, END))
    assert seen == [10, 20]
    for part in ("orders-0", "leader 100", "offset 20 is in tiered storage", f"starts at {LOCAL_START}"):
        assert part in str(caught.value)
    assert 55_000 <= sum(clock.slept_ms) <= 65_000


@pytest.mark.parametrize("local_start", [0, 20])
def test_nothing_from_the_leaders_own_disk_is_a_hole(
    cluster: FakeCluster, client: KafkaClient, clock: FakeClock, local_start: int
) -> None:
    serve(cluster, nothing_from(20))
    local_starts(cluster, lambda node_id: local_start)
    pieces = [(piece.next_offset, piece.is_last) for piece in client.fetch_range(TOPIC, 0, 0, END)]
    assert pieces == [(10, False), (20, False), (END, True)]
    assert clock.slept_ms == []


def test_brokers_that_are_older_than_tiers_are_believed_unasked(open_client: OpenClient) -> None:
    with FakeCluster(7, versions={ApiKey.LIST_OFFSETS: 7}) as old_cluster:
        old_cluster.leaders = {TOPIC: {0: (7, 3)}}
        serve(old_cluster, nothing_from(20))
        pieces = list(open_client(old_cluster).fetch_range(TOPIC, 0, 0, END))
        assert old_cluster.brokers[7].requests(ListOffsetsRequest) == []
    assert (pieces[-1].next_offset, pieces[-1].is_last) == (END, True)


def test_brokers_that_refuse_to_know_of_tiers_are_believed(cluster: FakeCluster, client: KafkaClient) -> None:
    serve(cluster, nothing_from(20))
    local_starts(cluster, lambda node_id: ErrorCode.UNSUPPORTED_VERSION)
    assert fetched(client) == SPANS[:2]


def test_a_leader_that_does_not_say_what_it_has_is_not_believed(cluster: FakeCluster, client: KafkaClient) -> None:
    serve(cluster, nothing_from(20))
    local_starts(cluster, lambda node_id: -1)
    assert "nothing at offset 20" in str(failure(client))


def test_what_a_leader_refuses_to_tell_for_good_is_told_at_once(
    cluster: FakeCluster, client: KafkaClient, clock: FakeClock
) -> None:
    serve(cluster, nothing_from(20))
    local_starts(cluster, lambda node_id: ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    error = failure(client)
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert clock.slept_ms == []


def test_what_the_next_leader_has_on_its_disk_says_nothing_of_the_last_ones_answer(
    cluster: FakeCluster, client: KafkaClient
) -> None:
    """Each replica deletes its local segments when it likes."""

    def start_of(node_id: int) -> int | ErrorCode:
        if node_id == 7:
            return 0
        cluster.leaders[TOPIC][0] = (7, 4)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    serve(
        cluster,
        lambda node_id, wanted: found(wanted) if node_id == 100 and wanted.fetch_offset >= 10 else records_from(wanted),
    )
    local_starts(cluster, start_of)
    assert fetched(client) == SPANS
    assert {partition.fetch_offset for partition in asked(cluster, 7)} == {10, 20, 30}


def test_a_range_that_waits_for_tiered_storage_holds_up_no_other(cluster: FakeCluster, client: KafkaClient) -> None:
    cluster.leaders[TOPIC][1] = (100, 3)
    serve(cluster, lambda node_id, wanted: found(wanted) if wanted.partition == 0 else always(node_id, wanted))
    local_starts(cluster, lambda node_id: LOCAL_START)
    ranges = [
        FetchRange(
            topic=TopicName(TOPIC), partition=PartitionIndex(index), start_offset=Offset(0), end_offset=Offset(END)
        )
        for index in (0, 1)
    ]
    failures, spans = [], []
    for each in client.fetch_ranges(ranges):
        if isinstance(each, FetchedBatches):
            spans += [(batch.base_offset, batch.last_offset) for batch in each.walk()]
        else:
            failures.append((each.range.partition, each.next_offset))
    assert failures == [(0, 0)]
    assert spans == SPANS


def test_storage_that_fails_for_a_moment_is_asked_again(cluster: FakeCluster, client: KafkaClient) -> None:
    failures = iter([ErrorCode.UNKNOWN_SERVER_ERROR] * 3)

    def handler(node_id: int, wanted: FetchPartition) -> PartitionData:
        code = next(failures, None) if wanted.fetch_offset >= 20 else None
        return records_from(wanted) if code is None else found(wanted, error_code=code)

    serve(cluster, handler)
    assert fetched(client) == SPANS


def test_storage_that_fails_for_good_is_one_error_at_the_deadline(cluster: FakeCluster, client: KafkaClient) -> None:
    serve(cluster, lambda node_id, wanted: found(wanted, error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
    error = failure(client)
    assert isinstance(error, PartitionUnavailable)
    assert "UNKNOWN_SERVER_ERROR at offset 0" in str(error)
