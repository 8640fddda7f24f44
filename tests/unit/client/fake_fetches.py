"""Brokers that answer Fetch as a test tells them to, and what a client makes of it."""

from collections.abc import Callable

import pytest

from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import QuorateError
from quorate.protocol.frames import RequestHeader
from quorate.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from quorate.protocol.schema import Request
from tests.unit.client.batches import log
from tests.unit.client.fake_broker import Answer, FakeCluster

TOPIC = "orders"
SPANS = [(0, 9), (10, 19), (20, 29), (30, 39)]
END = 40

#: What a broker says of one partition: (asked node, wanted part) -> its part of the answer.
PartitionHandler = Callable[[int, FetchPartition], PartitionData]


def serve(cluster: FakeCluster, handler: PartitionHandler, *, endpoints: tuple[NodeEndpoint, ...] = ()) -> None:
    def answer(node_id: int, request: Request, header: RequestHeader) -> Answer:
        assert isinstance(request, FetchRequest)
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[handler(node_id, partition) for partition in topic.partitions],
                )
                for topic in request.topics
            ],
            node_endpoints=endpoints if header.api_version >= 16 else (),
        )

    cluster.handle(FetchRequest, answer)


def found(wanted: FetchPartition, **fields: object) -> PartitionData:
    defaults = {"partition_index": wanted.partition, "high_watermark": END, "last_stable_offset": END}
    return PartitionData(**{**defaults, **fields})  # type: ignore[arg-type]


def records_from(wanted: FetchPartition, *, limit: int = 1) -> PartitionData:
    spans = [span for span in SPANS if span[1] >= wanted.fetch_offset][:limit]
    return found(wanted, records=log(*spans, epoch=3))


def always(node_id: int, wanted: FetchPartition) -> PartitionData:
    return records_from(wanted)


def fetched(client: KafkaClient, **settings: object) -> list[tuple[int, int]]:
    return [
        (batch.base_offset, batch.last_offset)
        for piece in client.fetch_range(TOPIC, 0, 0, END, **settings)  # type: ignore[arg-type]
        for batch in piece.walk()
    ]


def failure(client: KafkaClient, **settings: object) -> QuorateError:
    with pytest.raises(QuorateError) as caught:
        fetched(client, **settings)
    return caught.value


def asked(cluster: FakeCluster, node_id: int) -> list[FetchPartition]:
    return [
        partition
        for request in cluster.brokers[node_id].requests(FetchRequest)
        for topic in request.topics  # type: ignore[attr-defined]
        for partition in topic.partitions
    ]
