"""Clients that stay open while their node goes down and comes back, in order or by kill -9, lose and repeat nothing."""

import threading
import time
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from quorate.kernel.errors import ErrorCode
from tests.compat.clients.client import DEADLINE_S, Client, Record, StoredRecord, Writer
from tests.compat.clients.confluent import ConfluentClient
from tests.compat.conftest import CLIENTS, NodeUnderTest
from tests.compat.raw_connection import RawConnection
from tests.compat.raw_records import batch, new_producer_id, produce
from tests.compat.reading import read, read_all
from tests.eventually import eventually

NOON_MS = 1_735_732_800_000
Down = Callable[[NodeUnderTest], object]
WAYS_DOWN: list[Down] = [lambda node: node.stop(), lambda node: node.kill()]

pytestmark = pytest.mark.parametrize("take_down", WAYS_DOWN, ids=["stopped", "killed"])


class SteadyWriter:
    """Writes numbered records one small batch after the other, until it is stopped."""

    def __init__(self, writer: Writer, topic: str) -> None:
        self.acknowledged: list[int] = []
        self._writer = writer
        self._topic = topic
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._write_on)
        self._thread.start()

    def _write_on(self) -> None:
        number = 0
        while not self._stopping.is_set():
            batch = range(number, number + 10)
            try:
                self._writer.write(self._topic, [Record(None, str(each).encode(), now_ms()) for each in batch])
            except Exception as error:
                self._failure = error
                return
            self.acknowledged.extend(batch)
            number += 10

    def wait_for(self, more: int) -> None:
        wanted = len(self.acknowledged) + more
        eventually(lambda: self._failure or len(self.acknowledged) >= wanted, f"{more} more acknowledged records")
        assert self._failure is None, self._failure

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._failure is None, self._failure


@pytest.mark.parametrize("client_type", CLIENTS, ids=lambda client_type: client_type.name)
@pytest.mark.proves("idempotent writes and reads across the node's stop, and its kill -9")
def test_idempotent_producer_and_open_consumer_lose_and_repeat_nothing(
    own_node: NodeUnderTest, client_type: type[Client], take_down: Down, topic: str
) -> None:
    client = client_type(own_node.bootstrap)
    client.create_topic(topic)
    # By offset: a client may hand out a record again after it has lost its connection, but never another one.
    seen: dict[int, int] = {}
    with closing(client.reader({(topic, 0): 0})) as reader, closing(client.writer(idempotent=True)) as writer:
        steady = SteadyWriter(writer, topic)
        steady.wait_for(200)
        take_down(own_node)
        own_node.restart()
        steady.wait_for(200)
        steady.stop()

        def all_seen() -> bool:
            for stored in reader.poll():
                assert seen.setdefault(stored.offset, number(stored)) == number(stored)
            return len(seen) >= len(steady.acknowledged)

        eventually(all_seen, "the consumer to see all")

    assert [seen[offset] for offset in sorted(seen)] == steady.acknowledged
    assert [int(record.value or b"") for record in read_all(client, topic, len(seen))] == steady.acknowledged


def test_retry_of_an_idempotent_write_from_before_gets_the_same_offset(
    own_node: NodeUnderTest, take_down: Down, topic: str
) -> None:
    """What a producer does when the node went down between writing and answering."""
    ConfluentClient(own_node.bootstrap).create_topic(topic)
    with RawConnection(own_node.bootstrap) as connection:
        producer_id = new_producer_id(connection)
        batches = [batch(2, producer_id=producer_id, base_sequence=sequence) for sequence in (0, 2, 4)]
        eventually(lambda: produce(connection, topic, batches[0]).error_code == ErrorCode.NONE, "a leader")
        assert [produce(connection, topic, each).base_offset for each in batches] == [0, 2, 4]
    take_down(own_node)
    own_node.restart()

    with RawConnection(own_node.bootstrap) as connection:
        last = batches[-1]
        eventually(lambda: produce(connection, topic, last).error_code == ErrorCode.NONE, "a leader again")
        assert produce(connection, topic, last).base_offset == 4
        assert produce(connection, topic, batch(1)).base_offset == 6


def test_group_goes_on_where_it_was(own_node: NodeUnderTest, take_down: Down, topic: str, group: str) -> None:
    client = ConfluentClient(own_node.bootstrap)
    client.create_topic(topic, partitions=2)
    with closing(client.writer()) as writer, closing(client.member(group, [topic])) as member:
        write_to_both(writer, topic, 0)
        read(member, 20)
        member.commit()
        take_down(own_node)
        own_node.restart()

        write_to_both(writer, topic, 10)
        assert sorted(number(stored) for stored in read(member, 20)) == sorted([*range(10, 20)] * 2)
        eventually(lambda: committed(member.commit), "a commit after the restart")

    with closing(client.writer()) as writer, closing(client.member(group, [topic])) as newcomer:
        write_to_both(writer, topic, 20)
        assert sorted(number(stored) for stored in read(newcomer, 20)) == sorted([*range(20, 30)] * 2)


def test_topics_keep_their_ids_partitions_configs_and_records(
    own_node: NodeUnderTest, take_down: Down, topic: str
) -> None:
    client = ConfluentClient(own_node.bootstrap)
    client.create_topic(topic, partitions=2, configs={"retention.ms": "7777777"})
    gone = f"{topic}.gone"
    client.create_topic(gone)
    with closing(client.writer()) as writer:
        write_to_both(writer, topic, 0)
    admin = AdminClient({"bootstrap.servers": own_node.bootstrap})
    admin.delete_topics([gone])[gone].result(DEADLINE_S)
    before = topic_id(admin, topic)

    take_down(own_node)
    own_node.restart()

    admin = AdminClient({"bootstrap.servers": own_node.bootstrap})
    topics = admin.list_topics(timeout=DEADLINE_S).topics
    assert len(topics[topic].partitions) == 2
    assert gone not in topics
    assert topic_id(admin, topic) == before
    assert retention_ms(admin, topic) == "7777777"
    with closing(client.reader({(topic, 0): 0, (topic, 1): 0})) as reader:
        assert len(read(reader, 20)) == 20
    with closing(client.writer()) as writer:
        assert writer.write(topic, [Record(None, b"after", NOON_MS)]) == [10]


def write_to_both(writer: Writer, topic: str, first: int) -> None:
    records = [Record(None, str(each).encode(), NOON_MS) for each in range(first, first + 10)]
    for partition in (0, 1):
        writer.write(topic, records, partition)


def now_ms() -> int:
    """Old timestamps would do harm here: Apache Kafka forgets a producer at a restart by the age of its records."""
    return int(time.time() * 1000)


def number(stored: StoredRecord) -> int:
    assert stored.record.value is not None
    return int(stored.record.value)


def committed(commit: Callable[[], None]) -> bool:
    """Whether the commit went through; the member may have to join its group again first."""
    try:
        commit()
    except Exception:
        return False
    return True


def topic_id(admin: AdminClient, topic: str) -> str:
    return str(admin.describe_topics(TopicCollection([topic]))[topic].result(DEADLINE_S).topic_id)


def retention_ms(admin: AdminClient, topic: str) -> str:
    [described] = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return str(described.result(DEADLINE_S)["retention.ms"].value)
