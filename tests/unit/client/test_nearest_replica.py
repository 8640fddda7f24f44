"""Fetching from the replica that the leader names as the nearest (KIP-392), and back from the leader."""

import pytest

from quorate.client.fetch.cursor import AVOID_REPLICAS_MS
from quorate.kernel.errors import ErrorCode
from quorate.protocol.frames import RequestHeader
from quorate.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from quorate.protocol.schema import Request
from tests.unit.client.clock import FakeClock
from tests.unit.client.conftest import OpenClient
from tests.unit.client.fake_broker import Answer, FakeCluster
from tests.unit.client.fake_fetches import END, SPANS, TOPIC, asked, fetched, found, records_from, serve


def test_it_is_asked_once_the_leader_named_it(cluster: FakeCluster, open_client: OpenClient) -> None:
    def handler(node_id: int, wanted: FetchPartition) -> PartitionData:
        return found(wanted, preferred_read_replica=7) if node_id == 100 else records_from(wanted)

    serve(cluster, handler)
    assert fetched(open_client(rack="near")) == SPANS
    assert len(asked(cluster, 100)) == 1
    assert {request.rack_id for request in cluster.brokers[100].requests(FetchRequest)} == {"near"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_the_leader_serves_what_it_cannot(cluster: FakeCluster, open_client: OpenClient, code: ErrorCode) -> None:
    def answer(node_id: int, request: Request, header: RequestHeader) -> Answer:
        assert isinstance(request, FetchRequest)
        (topic,) = request.topics
        (wanted,) = topic.partitions
        if node_id == 7:
            part = found(wanted, error_code=code)
        elif request.rack_id and wanted.fetch_offset == 0 and not asked(cluster, 7):
            part = found(wanted, preferred_read_replica=7)
        else:
            part = records_from(wanted)
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=topic.topic_id, partitions=[part])])

    cluster.handle(FetchRequest, answer)
    assert fetched(open_client(rack="near")) == SPANS
    assert len(asked(cluster, 7)) == 1


def test_a_leader_that_insists_on_a_replica_that_cannot_help_is_asked_without_a_rack(
    cluster: FakeCluster, open_client: OpenClient
) -> None:
    def answer(node_id: int, request: Request, header: RequestHeader) -> Answer:
        assert isinstance(request, FetchRequest)
        (topic,) = request.topics
        (wanted,) = topic.partitions
        if node_id == 7:
            part = found(wanted, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        else:
            part = found(wanted, preferred_read_replica=7) if request.rack_id else records_from(wanted)
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=topic.topic_id, partitions=[part])])

    cluster.handle(FetchRequest, answer)
    assert fetched(open_client(rack="near")) == SPANS


def test_one_that_has_the_records_and_not_yet_the_high_watermark_is_waited_for(
    cluster: FakeCluster, open_client: OpenClient
) -> None:
    """Its leader has answered ``acks=all`` and names it, a moment before it knows itself what may be read."""

    def handler(node_id: int, wanted: FetchPartition) -> PartitionData:
        if node_id == 100:
            return found(wanted, preferred_read_replica=7)
        return (
            found(wanted, high_watermark=0, last_stable_offset=0)
            if len(asked(cluster, 7)) < 3
            else records_from(wanted)
        )

    serve(cluster, handler)
    client = open_client(rack="near")
    assert {int(piece.node_id) for piece in client.fetch_range(TOPIC, 0, 0, END)} == {7}
    assert len(asked(cluster, 100)) == 1


def test_one_that_stays_behind_is_left_for_the_leader_and_asked_again_later(
    cluster: FakeCluster, open_client: OpenClient, clock: FakeClock
) -> None:
    def answer(node_id: int, request: Request, header: RequestHeader) -> Answer:
        assert isinstance(request, FetchRequest)
        (topic,) = request.topics
        (wanted,) = topic.partitions
        if node_id == 100:
            part = found(wanted, preferred_read_replica=7) if request.rack_id else records_from(wanted)
        elif wanted.fetch_offset == 0:
            part = found(wanted, high_watermark=0, last_stable_offset=0)
        else:
            part = records_from(wanted)
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=topic.topic_id, partitions=[part])])

    cluster.handle(FetchRequest, answer)
    nodes = []
    for piece in open_client(rack="near").fetch_range(TOPIC, 0, 0, END):
        nodes.append(int(piece.node_id))
        clock.advance(AVOID_REPLICAS_MS)
    # One request is sent ahead while a piece is with its reader.
    assert nodes == [100, 100, 7, 7]


def test_it_does_not_say_where_the_log_ends(cluster: FakeCluster, open_client: OpenClient) -> None:
    """However little patience the caller has: the leader is asked before the range is said to end early."""

    def answer(node_id: int, request: Request, header: RequestHeader) -> Answer:
        assert isinstance(request, FetchRequest)
        (topic,) = request.topics
        (wanted,) = topic.partitions
        if node_id == 7:
            part = found(wanted, high_watermark=0, last_stable_offset=0)
        else:
            part = found(wanted, preferred_read_replica=7) if request.rack_id else records_from(wanted)
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=topic.topic_id, partitions=[part])])

    cluster.handle(FetchRequest, answer)
    assert fetched(open_client(rack="near", retry_timeout_ms=50)) == SPANS
