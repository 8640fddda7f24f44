"""DescribeTopicPartitions in pages, and the special timestamps of ListOffsets that came with tiered storage."""

from collections.abc import Iterator

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    RequestCursor,
    TopicRequest,
)
from quorate.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.compat.clients.client import Record
from tests.compat.clients.confluent import ConfluentClient
from tests.compat.raw_connection import RawConnection
from tests.eventually import eventually

NOON_MS = 1_735_732_800_000
EARLIEST_LOCAL = -4
LATEST_TIERED = -5


@pytest.fixture
def connection(bootstrap: str) -> Iterator[RawConnection]:
    with RawConnection(bootstrap) as open_connection:
        yield open_connection


def pages(connection: RawConnection, names: list[str], limit: int) -> list[list[tuple[str, list[int], int]]]:
    """Each page: topics with the partitions that it holds of them, and their errors."""
    found = []
    cursor: RequestCursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
        )
        page = connection.ask(request, 0, DescribeTopicPartitionsResponse)
        found.append(
            [
                (topic.name or "", [partition.partition_index for partition in topic.partitions], topic.error_code)
                for topic in page.topics
            ]
        )
        if page.next_cursor is None:
            return found
        cursor = RequestCursor(topic_name=page.next_cursor.topic_name, partition_index=page.next_cursor.partition_index)


def test_partitions_come_in_pages_that_go_on_at_the_cursor(
    connection: RawConnection, bootstrap: str, topic: str
) -> None:
    client = ConfluentClient(bootstrap)
    client.create_topic(f"{topic}.a", partitions=3)
    client.create_topic(f"{topic}.b", partitions=4)
    names = [f"{topic}.b", f"{topic}.a"]
    eventually(lambda: all(error == 0 for _, _, error in pages(connection, names, 10)[0]), "both topics to be known")

    assert pages(connection, names, 2) == [
        [(f"{topic}.a", [0, 1], 0)],
        [(f"{topic}.a", [2], 0), (f"{topic}.b", [0], 0)],
        [(f"{topic}.b", [1, 2], 0)],
        [(f"{topic}.b", [3], 0)],
    ]
    assert pages(connection, names, 2_000) == [[(f"{topic}.a", [0, 1, 2], 0), (f"{topic}.b", [0, 1, 2, 3], 0)]]


def test_missing_topic_is_named_among_the_others(connection: RawConnection, bootstrap: str, topic: str) -> None:
    ConfluentClient(bootstrap).create_topic(topic)
    missing = f"{topic}.missing"

    [page] = pages(connection, [topic, missing], 10)
    assert page == [(topic, [0], ErrorCode.NONE), (missing, [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


@pytest.mark.parametrize(("timestamp", "first_version", "offset"), [(EARLIEST_LOCAL, 8, 0), (LATEST_TIERED, 9, -1)])
def test_offsets_of_tiered_storage_are_those_of_a_log_that_is_all_local(
    connection: RawConnection, bootstrap: str, timestamp: int, first_version: int, offset: int
) -> None:
    topic = f"all-local-{first_version}"
    client = ConfluentClient(bootstrap)
    client.create_topic(topic)
    client.writer().write(topic, [Record(None, b"", NOON_MS)] * 3)
    partition = ListOffsetsPartition(timestamp=timestamp)
    request = ListOffsetsRequest(topics=(ListOffsetsTopic(name=topic, partitions=(partition,)),))

    for version in range(first_version, 11):
        [answer] = connection.ask(request, version, ListOffsetsResponse).topics[0].partitions
        assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.NONE, offset, -1)
    [refused] = connection.ask(request, first_version - 1, ListOffsetsResponse).topics[0].partitions
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
