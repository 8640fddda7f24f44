"""DescribeTopicPartitions in pages that go on at a cursor."""

from collections.abc import Iterator

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    RequestCursor,
    TopicRequest,
)
from tests.compat.clients.confluent import ConfluentClient
from tests.compat.raw_connection import RawConnection
from tests.eventually import eventually


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
