"""ListOffsets by hand: every special timestamp in every version that has it, and those that no version has."""

from collections.abc import Iterator

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.compat.clients.client import Record
from tests.compat.clients.confluent import ConfluentClient
from tests.compat.raw_connection import RawConnection

NOON_MS = 1_735_732_800_000
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
NEVER_SPECIAL = (-99, -(2**63))
VERSIONS = range(1, 11)


@pytest.fixture
def connection(bootstrap: str) -> Iterator[RawConnection]:
    with RawConnection(bootstrap) as opened:
        yield opened


@pytest.fixture
def three_records(bootstrap: str, topic: str) -> str:
    """A topic whose second record has the largest timestamp."""
    client = ConfluentClient(bootstrap)
    client.create_topic(topic)
    writer = client.writer()
    for milliseconds in (5, 9, 7):
        writer.write(topic, [Record(None, b"", NOON_MS + milliseconds)])
    return topic


def list_offset(connection: RawConnection, topic: str, timestamp: int, version: int) -> ListOffsetsPartitionResponse:
    partition = ListOffsetsPartition(timestamp=timestamp)
    request = ListOffsetsRequest(topics=(ListOffsetsTopic(name=topic, partitions=(partition,)),))
    [answer] = connection.ask(request, version, ListOffsetsResponse).topics[0].partitions
    return answer


@pytest.mark.parametrize(
    ("timestamp", "first_version", "expected"),
    [
        (LATEST, 1, (3, -1)),
        (EARLIEST, 1, (0, -1)),
        (MAX_TIMESTAMP, 7, (1, NOON_MS + 9)),
        # Without tiered storage the log is all local.
        (EARLIEST_LOCAL, 8, (0, -1)),
        (LATEST_TIERED, 9, (-1, -1)),
        (NOON_MS + 6, 1, (1, NOON_MS + 9)),
        (NOON_MS + 10, 1, (-1, -1)),
    ],
)
def test_offset_is_listed_from_the_version_on_that_has_its_timestamp(
    connection: RawConnection, three_records: str, timestamp: int, first_version: int, expected: tuple[int, int]
) -> None:
    for version in VERSIONS:
        answer = list_offset(connection, three_records, timestamp, version)
        if version < first_version:
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        else:
            assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.NONE, *expected)


@pytest.mark.parametrize("timestamp", NEVER_SPECIAL)
def test_negative_timestamp_without_a_meaning_is_refused(
    connection: RawConnection, three_records: str, timestamp: int
) -> None:
    for version in VERSIONS:
        answer = list_offset(connection, three_records, timestamp, version)
        assert (answer.error_code, answer.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)
