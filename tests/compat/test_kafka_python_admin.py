"""Administration through kafka-python, in far newer versions of the requests than aiokafka's."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic, OffsetSpec
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from kafka.structs import OffsetAndMetadata

from tests.compat.clients.client import Record
from tests.compat.clients.kafka_python import KafkaPythonClient
from tests.compat.reading import read
from tests.eventually import eventually
from tests.proofs import KAFKA_PYTHON

pytestmark = pytest.mark.proves(
    *KAFKA_PYTHON, "admin: topics, partitions, configs, records, groups, offsets, log directories, cluster"
)

NOON_MS = 1_735_732_800_000
RECORDS = [Record(None, str(number).encode(), NOON_MS + number) for number in range(5)]


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Any]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as client:
        yield client


@pytest.fixture
def client(bootstrap: str) -> KafkaPythonClient:
    return KafkaPythonClient(bootstrap)


def test_topics_are_created_described_and_deleted(admin: Any, topic: str) -> None:
    new_topic = NewTopic(topic, num_partitions=2, replication_factor=1)
    admin.create_topics([new_topic])

    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([new_topic])
    eventually(lambda: topic in admin.list_topics(), "the topic to be listed")
    [description] = admin.describe_topics([topic])
    assert [partition["leader_id"] for partition in description["partitions"]] == [7, 7]
    assert [partition["isr_nodes"] for partition in description["partitions"]] == [[7], [7]]

    admin.delete_topics([topic])
    eventually(lambda: topic not in admin.list_topics(), "the topic to be gone")
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def test_topic_partitions_are_described_by_their_own_request(admin: Any, client: KafkaPythonClient, topic: str) -> None:
    create_topic(admin, topic, partitions=3)

    described = admin.describe_topic_partitions([topic])

    [found] = described["topics"]
    assert [partition["partition_index"] for partition in found["partitions"]] == [0, 1, 2]
    assert {partition["leader_id"] for partition in found["partitions"]} == {7}


def test_cluster_is_described(admin: Any, bootstrap: str) -> None:
    cluster = admin.describe_cluster()

    [broker] = cluster["brokers"]
    assert (broker["broker_id"], f"{broker['host']}:{broker['port']}") == (7, bootstrap)
    assert cluster["controller_id"] == 7


def test_partitions_are_added(admin: Any, topic: str) -> None:
    create_topic(admin, topic)

    admin.create_partitions({topic: 3})

    eventually(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 3, "3 partitions")


def test_topic_configs_are_changed_and_reset(admin: Any, topic: str) -> None:
    create_topic(admin, topic)

    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "54321"})])
    eventually(lambda: modified_configs(admin, topic).get("retention.ms") == "54321", "the new value")

    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, ["retention.ms"])])
    eventually(lambda: "retention.ms" not in modified_configs(admin, topic), "the default")


def test_records_are_deleted_and_offsets_listed(admin: Any, client: KafkaPythonClient, topic: str) -> None:
    client.create_topic(topic)
    partition = TopicPartition(topic, 0)
    with closing(client.writer()) as writer:
        writer.write(topic, RECORDS)

    assert admin.delete_records({partition: 2})[partition]["low_watermark"] == 2

    for specification, offset in (
        (OffsetSpec.EARLIEST, 2),
        (OffsetSpec.LATEST, 5),
        (OffsetSpec.MAX_TIMESTAMP, 4),
    ):
        assert admin.list_partition_offsets({partition: specification})[partition].offset == offset


def test_groups_are_listed_described_and_deleted(admin: Any, client: KafkaPythonClient, topic: str, group: str) -> None:
    client.create_topic(topic)
    with closing(client.writer()) as writer:
        writer.write(topic, RECORDS)
    with closing(client.member(group, [topic])) as member:
        read(member, 5)
        member.commit()
        description = admin.describe_groups([group])[group]
        assert (description["group_state"], len(description["members"])) == ("Stable", 1)

    assert group in [each["group_id"] for each in admin.list_groups()]
    eventually(lambda: admin.describe_groups([group])[group]["group_state"] == "Empty", "an empty group")
    assert committed_offsets(admin, group) == {(topic, 0): 5}

    assert admin.delete_groups([group]) == {group: "OK"}
    assert committed_offsets(admin, group) == {}
    assert group not in [each["group_id"] for each in admin.list_groups()]


def test_group_offsets_are_changed_and_deleted(admin: Any, client: KafkaPythonClient, topic: str, group: str) -> None:
    client.create_topic(topic)
    partition = TopicPartition(topic, 0)

    admin.alter_group_offsets(group, {partition: OffsetAndMetadata(3, "by hand", -1)})
    assert committed_offsets(admin, group) == {(topic, 0): 3}
    assert admin.list_group_offsets([group])[group][partition].metadata == "by hand"

    admin.delete_group_offsets(group, [partition])
    assert committed_offsets(admin, group) == {}


def test_log_directory_is_described(admin: Any, client: KafkaPythonClient, topic: str) -> None:
    client.create_topic(topic)
    with closing(client.writer()) as writer:
        writer.write(topic, RECORDS)

    [broker] = admin.describe_log_dirs()

    sizes = {
        (found["name"], partition["partition_index"]): partition["partition_size"]
        for directory in broker["log_dirs"]
        for found in directory["topics"]
        for partition in found["partitions"]
    }
    assert sizes[topic, 0] > 0


def create_topic(admin: Any, topic: str, partitions: int = 1) -> None:
    """Also wait for it: Apache Kafka's brokers learn of a topic after its creation was answered."""
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
    eventually(lambda: topic in admin.list_topics(), "the topic to be listed")


def modified_configs(admin: Any, topic: str) -> dict[str, str]:
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    return {name: entry["value"] for name, entry in described["topic"][topic].items()}


def committed_offsets(admin: Any, group: str) -> dict[tuple[str, int], int]:
    offsets = admin.list_group_offsets([group])[group]
    return {(partition.topic, partition.partition): committed.offset for partition, committed in offsets.items()}
