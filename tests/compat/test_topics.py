"""Topics come and go: creation on first use, refusals, deletion, and a new life under the same name."""

from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compat.administration import delete_topic
from tests.compat.clients.client import DEADLINE_S, Client, Record
from tests.compat.clients.confluent import ConfluentClient
from tests.compat.raw_connection import RawConnection
from tests.compat.raw_records import batch, produce
from tests.compat.reading import read, read_all
from tests.eventually import eventually

pytestmark = pytest.mark.proves("topics: made by the first write, deleted and made again under open clients")

NOON_MS = 1_735_732_800_000
RECORDS = [Record(None, str(number).encode(), NOON_MS + number) for number in range(5)]


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def test_topic_is_created_by_the_first_write(client: Client, topic: str) -> None:
    with closing(client.writer()) as writer:
        assert writer.write(topic, RECORDS) == [0, 1, 2, 3, 4]

    assert read_all(client, topic, 5) == RECORDS


def test_hundred_topics_in_one_request_all_take_writes(admin: AdminClient, bootstrap: str, topic: str) -> None:
    """Once, a batch of topics initialised only its first one."""
    names = [f"{topic}.{number}" for number in range(100)]

    for created in admin.create_topics([NewTopic(name, num_partitions=2) for name in names]).values():
        created.result(DEADLINE_S)

    assert set(names) <= set(admin.list_topics(timeout=DEADLINE_S).topics)
    with closing(ConfluentClient(bootstrap).writer()) as writer:
        for name in names:
            assert writer.write(name, RECORDS[:1], partition=1) == [0]


def test_created_topic_takes_writes_as_soon_as_its_creation_is_answered(
    request: pytest.FixtureRequest, bootstrap: str, topic: str
) -> None:
    if request.config.getoption("--target") == "apache-kafka":
        pytest.skip("Apache Kafka answers before its broker leads the new partitions")
    client = ConfluentClient(bootstrap)
    with RawConnection(bootstrap) as connection:
        for number in range(10):
            name = f"{topic}.{number}"
            client.create_topic(name, partitions=3)
            assert [produce(connection, name, batch(1), partition=each).error_code for each in range(3)] == [0, 0, 0]


def test_topic_that_exists_is_not_created_again(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(DEADLINE_S)

    assert refusal(admin, NewTopic(topic, num_partitions=1)) == KafkaError.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("name", ["with space", "slash/ed", "..", ".", "x" * 250, "naïve", "colon:ed"])
def test_invalid_topic_name_is_refused(admin: AdminClient, name: str) -> None:
    assert refusal(admin, NewTopic(name, num_partitions=1)) == KafkaError.TOPIC_EXCEPTION


def test_longest_topic_name_is_taken(admin: AdminClient, topic: str) -> None:
    name = (topic + "x" * 249)[:249]

    admin.create_topics([NewTopic(name, num_partitions=1)])[name].result(DEADLINE_S)

    assert name in admin.list_topics(timeout=DEADLINE_S).topics
    admin.delete_topics([name])[name].result(DEADLINE_S)
    eventually(lambda: name not in admin.list_topics(timeout=DEADLINE_S).topics, "the topic to be gone")
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(DEADLINE_S)  # The node is well.


def test_zero_partitions_are_refused(admin: AdminClient, topic: str) -> None:
    assert refusal(admin, NewTopic(topic, num_partitions=0)) == KafkaError.INVALID_PARTITIONS


def test_more_replicas_than_nodes_are_refused(admin: AdminClient, topic: str) -> None:
    refused = refusal(admin, NewTopic(topic, num_partitions=1, replication_factor=3))

    assert refused == KafkaError.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    "configs", [{"no.such.config": "1"}, {"retention.ms": "soon"}, {"cleanup.policy": "burn"}, {"segment.bytes": "-5"}]
)
def test_topic_with_an_invalid_config_is_refused(admin: AdminClient, topic: str, configs: dict[str, str]) -> None:
    assert refusal(admin, NewTopic(topic, num_partitions=1, config=configs)) == KafkaError.INVALID_CONFIG


def test_one_bad_topic_in_a_request_does_not_spoil_the_others(admin: AdminClient, topic: str) -> None:
    created = admin.create_topics([NewTopic(topic, num_partitions=1), NewTopic("not valid", num_partitions=1)])

    created[topic].result(DEADLINE_S)
    assert error_code(lambda: created["not valid"].result(DEADLINE_S)) == KafkaError.TOPIC_EXCEPTION


def test_validation_alone_creates_nothing(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, num_partitions=1)], validate_only=True)[topic].result(DEADLINE_S)

    assert topic not in admin.list_topics(timeout=DEADLINE_S).topics


def test_unknown_topic_is_reported_to_who_must_not_create_it(bootstrap: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "allow.auto.create.topics": False})
    try:
        metadata = consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic]
    finally:
        consumer.close()

    error = metadata.error
    assert error is not None
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_unknown_topic_cannot_be_deleted(admin: AdminClient, topic: str) -> None:
    deleted = admin.delete_topics([topic])[topic]

    assert error_code(lambda: deleted.result(DEADLINE_S)) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_topic_created_again_is_empty_and_has_a_new_id(
    client: Client, admin: AdminClient, bootstrap: str, topic: str
) -> None:
    client.create_topic(topic)
    with closing(client.writer()) as writer:
        writer.write(topic, RECORDS)
    first_id = topic_id(admin, topic)

    delete_topic(bootstrap, topic)
    eventually(lambda: topic not in admin.list_topics(timeout=DEADLINE_S).topics, "the topic to be gone")
    client.create_topic(topic)

    assert topic_id(admin, topic) != first_id
    assert client.log_end_offset(topic, 0) == 0


def test_open_clients_go_on_with_a_topic_that_was_deleted_and_comes_back(
    client: Client, admin: AdminClient, bootstrap: str, topic: str
) -> None:
    """The topic comes back by the writer's next use, under a new id that the clients must learn."""
    client.create_topic(topic)
    with closing(client.writer()) as writer, closing(client.reader({(topic, 0): 0})) as reader:
        writer.write(topic, RECORDS)
        read(reader, 5)
        first_id = topic_id(admin, topic)
        delete_topic(bootstrap, topic)
        new_record = Record(None, b"new life", NOON_MS)

        def write_and_read() -> bool:
            writer.write(topic, [new_record])
            return new_record in [stored.record for stored in reader.poll()]

        eventually(write_and_read, "a record of the new topic, through clients that knew the old one")

    assert topic_id(admin, topic) != first_id


def refusal(admin: AdminClient, new_topic: NewTopic) -> int:
    """The error code with which the topic is refused."""
    created = admin.create_topics([new_topic])[new_topic.topic]
    return error_code(lambda: created.result(DEADLINE_S))


def error_code(action: Callable[[], object]) -> int:
    with pytest.raises(KafkaException) as raised:
        action()
    error = raised.value.args[0]
    assert isinstance(error, KafkaError)
    return error.code()


def topic_id(admin: AdminClient, topic: str) -> str:
    description = admin.describe_topics(TopicCollection([topic]))[topic].result(DEADLINE_S)
    return str(description.topic_id)
