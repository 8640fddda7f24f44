"""Offsets at the ends of a log and by time, and where a consumer without a position starts."""

from contextlib import closing

import pytest

from tests.compat.administration import delete_records_before
from tests.compat.clients.client import Client, Record
from tests.compat.clients.confluent import ConfluentClient
from tests.compat.reading import read
from tests.eventually import eventually

pytestmark = pytest.mark.proves("offsets: both ends, by time, resets, deleted records")

NOON_MS = 1_735_732_800_000
RECORDS = [Record(None, str(number).encode(), NOON_MS + 1000 * number) for number in range(10)]


def test_empty_partition_starts_and_ends_at_offset_0(client: Client, topic: str) -> None:
    client.create_topic(topic)

    assert client.log_start_offset(topic, 0) == 0
    assert client.log_end_offset(topic, 0) == 0
    assert client.offset_for_time(topic, 0, NOON_MS) is None


def test_log_end_offset_is_one_past_the_last_record(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    with closing(client.writer()) as writer:
        writer.write(topic, RECORDS, partition=1)

    assert client.log_end_offset(topic, 1) == 10
    assert client.log_end_offset(topic, 0) == 0


@pytest.mark.parametrize(
    ("timestamp_ms", "offset"),
    [(0, 0), (NOON_MS, 0), (NOON_MS + 1, 1), (NOON_MS + 5000, 5), (NOON_MS + 9000, 9), (NOON_MS + 9001, None)],
)
def test_offset_by_time_is_the_first_record_not_older(
    client: Client, topic: str, timestamp_ms: int, offset: int | None
) -> None:
    client.create_topic(topic)
    with closing(client.writer(codec="gzip")) as writer:
        writer.write(topic, RECORDS)

    assert client.offset_for_time(topic, 0, timestamp_ms) == offset


def test_offset_by_time_with_timestamps_out_of_order(client: Client, topic: str) -> None:
    client.create_topic(topic)
    with closing(client.writer()) as writer:
        for seconds in (5, 1, 9, 2):
            writer.write(topic, [Record(None, b"", NOON_MS + 1000 * seconds)])

    assert client.offset_for_time(topic, 0, NOON_MS + 6000) == 2
    assert client.offset_for_time(topic, 0, NOON_MS) == 0


def test_reading_starts_at_any_offset(client: Client, topic: str) -> None:
    client.create_topic(topic)
    with closing(client.writer(codec="gzip")) as writer:
        writer.write(topic, RECORDS)

    with closing(client.reader({(topic, 0): 7})) as reader:
        assert [stored.offset for stored in read(reader, 3)] == [7, 8, 9]


def test_deleted_records_move_the_log_start_offset(client: Client, bootstrap: str, topic: str) -> None:
    client.create_topic(topic)
    with closing(client.writer()) as writer:
        for record in RECORDS:
            writer.write(topic, [record])

    delete_records_before(bootstrap, topic, 4)

    assert client.log_start_offset(topic, 0) == 4
    assert client.log_end_offset(topic, 0) == 10
    assert client.offset_for_time(topic, 0, 0) == 4


def test_member_without_a_committed_offset_starts_at_the_log_start_when_told_earliest(
    client: Client, bootstrap: str, topic: str, group: str
) -> None:
    client.create_topic(topic)
    with closing(client.writer()) as writer:
        for record in RECORDS:
            writer.write(topic, [record])
    delete_records_before(bootstrap, topic, 4)

    with closing(client.member(group, [topic], reset="earliest")) as member:
        assert [stored.offset for stored in read(member, 6)] == [4, 5, 6, 7, 8, 9]


def test_member_without_a_committed_offset_skips_what_is_there_when_told_latest(
    client: Client, topic: str, group: str
) -> None:
    client.create_topic(topic)
    with closing(client.writer()) as writer:
        writer.write(topic, RECORDS)
        with closing(client.member(group, [topic], reset="latest")) as member:
            # "latest" counts from when the member has its position, so writing goes on until something arrives.
            def first_seen() -> list[int]:
                if member.assignment():
                    writer.write(topic, RECORDS[:1])
                return [stored.offset for stored in member.poll()]

            assert eventually(first_seen, "a first record")[0] >= 10


def test_committed_offset_below_the_log_start_resets_to_the_earliest(bootstrap: str, topic: str, group: str) -> None:
    client = ConfluentClient(bootstrap)
    client.create_topic(topic)
    with closing(client.writer()) as writer:
        for record in RECORDS:
            writer.write(topic, [record])
    with closing(client.member(group, [topic])) as member:
        read(member, 10)
    delete_records_before(bootstrap, topic, 6)

    with closing(client.member(group, [topic], reset="earliest")) as member:
        assert [stored.offset for stored in read(member, 4)] == [6, 7, 8, 9]


def test_consumer_at_an_offset_out_of_range_is_told_so_and_resets(client: Client, topic: str) -> None:
    """Past the end as below the start: the client resets by its own rule, here to the end of the log."""
    client.create_topic(topic)
    with closing(client.writer()) as writer:
        writer.write(topic, RECORDS)
        with closing(client.reader({(topic, 0): 99})) as reader:

            def reset_and_read() -> list[int]:
                writer.write(topic, RECORDS[:1])
                return [stored.offset for stored in reader.poll()]

            assert 10 <= eventually(reset_and_read, "a record after the reset")[0] < 99
