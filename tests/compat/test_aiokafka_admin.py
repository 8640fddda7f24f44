"""Administration through aiokafka, in old versions of the requests."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidPartitionsError

from tests.compat.clients.aiokafka_client import AiokafkaClient, run
from tests.compat.clients.client import Record
from tests.compat.reading import read
from tests.eventually import eventually
from tests.proofs import AIOKAFKA

pytestmark = pytest.mark.proves(*AIOKAFKA, "admin: topics, partitions, configs, records, groups, cluster")

NOON_MS = 1_735_732_800_000
RECORDS = [Record(None, str(number).encode(), NOON_MS + number) for number in range(5)]
TOPIC_ALREADY_EXISTS = 36
UNKNOWN_TOPIC_OR_PARTITION = 3


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Any]:
    client = run(start(bootstrap))
    yield client
    run(client.close())


async def start(bootstrap: str) -> Any:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    return client


@pytest.fixture
def client(bootstrap: str) -> AiokafkaClient:
    return AiokafkaClient(bootstrap)


def test_topics_are_created_described_and_deleted(admin: Any, topic: str) -> None:
    assert create_topic(admin, topic, 2) == 0
    assert create_topic(admin, topic, 2) == TOPIC_ALREADY_EXISTS
    eventually(lambda: topic in run(admin.list_topics()), "the topic to be listed")
    [description] = run(admin.describe_topics([topic]))
    assert [partition["leader"] for partition in description["partitions"]] == [7, 7]

    assert delete_topic(admin, topic) == 0
    eventually(lambda: topic not in run(admin.list_topics()), "the topic to be gone")
    assert delete_topic(admin, topic) == UNKNOWN_TOPIC_OR_PARTITION


def test_cluster_is_described(admin: Any, bootstrap: str) -> None:
    cluster = run(admin.describe_cluster())

    [broker] = cluster["brokers"]
    assert (broker["node_id"], f"{broker['host']}:{broker['port']}") == (7, bootstrap)
    assert cluster["controller_id"] == 7


def test_partitions_are_added_and_never_taken_away(admin: Any, client: AiokafkaClient, topic: str) -> None:
    client.create_topic(topic)

    run(admin.create_partitions({topic: NewPartitions(3)}))

    eventually(lambda: len(run(admin.describe_topics([topic]))[0]["partitions"]) == 3, "3 partitions")
    with pytest.raises(InvalidPartitionsError):
        run(admin.create_partitions({topic: NewPartitions(2)}))


def test_topic_configs_are_changed(admin: Any, client: AiokafkaClient, topic: str) -> None:
    client.create_topic(topic, configs={"segment.bytes": "2000000"})
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "54321"})

    [altered] = run(admin.alter_configs([resource]))

    assert [each[0] for each in altered.resources] == [0]
    eventually(lambda: configs(admin, topic)["retention.ms"] == "54321", "the new value")
    assert configs(admin, topic)["segment.bytes"] == "1073741824"


def test_broker_configs_are_described(admin: Any) -> None:
    [described] = run(admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, "7")]))

    [(_, _, _, _, entries)] = described.resources
    assert {entry[0]: entry[1] for entry in entries}["node.id"] == "7"


def test_records_are_deleted(admin: Any, client: AiokafkaClient, topic: str) -> None:
    client.create_topic(topic)
    with closing(client.writer()) as writer:
        writer.write(topic, RECORDS)
    partition = TopicPartition(topic, 0)

    assert run(admin.delete_records({partition: RecordsToDelete(2)})) == {partition: 2}
    assert client.log_start_offset(topic, 0) == 2


def test_groups_are_listed_described_and_their_offsets_read(
    admin: Any, client: AiokafkaClient, topic: str, group: str
) -> None:
    client.create_topic(topic)
    with closing(client.writer()) as writer:
        writer.write(topic, RECORDS)
    with closing(client.member(group, [topic])) as member:
        read(member, 5)
        member.commit()
        [described] = run(admin.describe_consumer_groups([group]))
        assert [(each[1], each[2]) for each in described.groups] == [(group, "Stable")]

    assert (group, "consumer") in [each[:2] for each in run(admin.list_consumer_groups())]
    offsets = run(admin.list_consumer_group_offsets(group))
    assert offsets[TopicPartition(topic, 0)].offset == 5


def create_topic(admin: Any, topic: str, partitions: int) -> int:
    """The error code of the answer."""
    response = run(admin.create_topics([NewTopic(topic, partitions, 1)]))
    [(_, error_code, *_)] = response.topic_errors
    return int(error_code)


def delete_topic(admin: Any, topic: str) -> int:
    [(_, error_code)] = run(admin.delete_topics([topic])).topic_error_codes
    return int(error_code)


def configs(admin: Any, topic: str) -> dict[str, str]:
    [described] = run(admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]))
    [(_, _, _, _, entries)] = described.resources
    return {entry[0]: entry[1] for entry in entries}
