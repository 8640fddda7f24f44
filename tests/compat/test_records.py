"""Records come back as they were sent, through every client, codec and level of acknowledgement."""

from contextlib import closing

import pytest

from tests.compat.clients.client import Acks, Client, Codec, Record
from tests.compat.clients.confluent import ConfluentClient
from tests.compat.conftest import CLIENTS
from tests.compat.reading import read, read_all

pytestmark = pytest.mark.proves(
    "records: every codec and level of acks, idempotence, headers, large records, log append time"
)

NOON_MS = 1_735_732_800_000

# Each differs from its neighbours in one thing that a broker, or a client, might get wrong.
RECORDS = [
    Record(b"key", b"value", NOON_MS),
    Record(None, b"no key", NOON_MS + 1),
    Record(b"", b"empty key", NOON_MS + 2),
    Record(b"empty value", b"", NOON_MS + 3),
    Record(b"tombstone", None, NOON_MS + 4),
    Record(b"\x00\xff\xfe", bytes(range(256)), NOON_MS + 5),
    Record(b"out of order", b"earlier than the one before", NOON_MS - 1000),
    Record(b"far apart", b"more than 2**31 ms later", NOON_MS + 2**31 + 7),
    Record(b"headers", b"in order, with duplicates", NOON_MS + 8, (("b", b"1"), ("a", b"2"), ("b", b"3"))),
    Record(b"headers", b"null and empty", NOON_MS + 9, (("null", None), ("empty", b""), ("", b"no name"))),
    Record(b"headers", b"binary", NOON_MS + 10, (("ключ", bytes(range(256))),)),
    Record(b"long", b"compressible " * 4000, NOON_MS + 11),
]

CODECS_BY_CLIENT = [(client, codec) for client in CLIENTS for codec in client.codecs]


@pytest.mark.parametrize(("client", "codec"), CODECS_BY_CLIENT, indirect=["client"])
def test_every_client_writes_with_every_codec_and_others_read_the_same(
    client: Client, codec: Codec, bootstrap: str, topic: str
) -> None:
    client.create_topic(topic)
    records = (
        RECORDS if client.writes_null_headers else [each for each in RECORDS if ("null", None) not in each.headers]
    )

    with closing(client.writer(codec=codec)) as writer:
        offsets = writer.write(topic, records)

    assert offsets == list(range(len(records)))
    assert read_all(ConfluentClient(bootstrap), topic, len(records)) == records


def test_every_client_reads_what_another_wrote(client: Client, bootstrap: str, topic: str) -> None:
    confluent = ConfluentClient(bootstrap)
    confluent.create_topic(topic)
    for codec in client.codecs:
        with closing(confluent.writer(codec=codec)) as writer:
            writer.write(topic, RECORDS)

    assert read_all(client, topic, len(RECORDS) * len(client.codecs)) == RECORDS * len(client.codecs)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_are_stored_at_every_level_of_acknowledgement(client: Client, acks: Acks, topic: str) -> None:
    client.create_topic(topic)

    with closing(client.writer(acks=acks)) as writer:
        writer.write(topic, RECORDS[:6])
        writer.write(topic, RECORDS[:6])

    assert read_all(client, topic, 12) == RECORDS[:6] * 2


def test_idempotent_producer_writes_each_record_once_and_in_order(client: Client, topic: str) -> None:
    client.create_topic(topic)
    records = [Record(b"k", str(number).encode(), NOON_MS + number) for number in range(500)]

    with closing(client.writer(idempotent=True)) as writer:
        offsets = writer.write(topic, records[:100])
        offsets += writer.write(topic, records[100:])

    assert offsets == list(range(500))
    assert read_all(client, topic, 500) == records


def test_partitions_have_offsets_of_their_own(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=3)
    with closing(client.writer()) as writer:
        assert [writer.write(topic, RECORDS[:count], partition=count) for count in range(3)] == [[], [0], [0, 1]]

    with closing(client.reader({(topic, partition): 0 for partition in range(3)})) as reader:
        stored = read(reader, 3)

    assert sorted((partition, offset) for _, partition, offset, _ in stored) == [(1, 0), (2, 0), (2, 1)]


def test_record_as_large_as_the_limit_is_taken_and_a_larger_one_refused(client: Client, topic: str) -> None:
    client.create_topic(topic, configs={"max.message.bytes": "100000"})

    with closing(client.writer()) as writer:
        assert writer.write(topic, [Record(None, b"x" * 99_900, NOON_MS)]) == [0]
        with pytest.raises(
            Exception, match=r"(?i)MSG_SIZE_TOO_LARGE|MessageSizeTooLarge|RecordTooLarge|MessageTooLarge"
        ):
            writer.write(topic, [Record(None, b"x" * 100_001, NOON_MS)])
        assert writer.write(topic, [Record(None, b"small again", NOON_MS)]) == [1]


def test_megabyte_records_come_back_when_several_are_fetched_at_once(client: Client, topic: str) -> None:
    client.create_topic(topic)
    records = [Record(None, bytes([number]) * 1_000_000, NOON_MS) for number in range(8)]
    with closing(client.writer()) as writer:
        for record in records:
            writer.write(topic, [record])

    assert read_all(client, topic, len(records)) == records


def test_topic_with_log_append_time_stamps_records_itself(client: Client, topic: str) -> None:
    client.create_topic(topic, configs={"message.timestamp.type": "LogAppendTime"})
    with closing(client.writer()) as writer:
        writer.write(topic, RECORDS[:3])

    times = {record.timestamp_ms for record in read_all(client, topic, 3)}

    assert len(times) == 1
    assert not times & {record.timestamp_ms for record in RECORDS}


def test_waiting_consumer_gets_a_record_that_arrives_later(client: Client, topic: str) -> None:
    client.create_topic(topic)
    with closing(client.reader({(topic, 0): 0})) as reader, closing(client.writer()) as writer:
        assert reader.poll() == []
        for number in range(5):
            writer.write(topic, [Record(None, str(number).encode(), NOON_MS)])
            assert [stored.offset for stored in read(reader, 1)] == [number]


def test_long_lived_consumer_follows_many_topics(client: Client, topic: str) -> None:
    """An incremental fetch session names only what changed; the rest must not be forgotten."""
    topics = [f"{topic}.{number}" for number in range(6)]
    for name in topics:
        client.create_topic(name, partitions=2)
    positions = {(name, partition): 0 for name in topics for partition in range(2)}
    with closing(client.reader(positions)) as reader, closing(client.writer()) as writer:
        for turn in range(3):
            for name in topics[turn:]:
                writer.write(name, RECORDS[:2], partition=1)
            stored = read(reader, 2 * len(topics[turn:]))
            assert {name for name, _, _, _ in stored} == set(topics[turn:])
