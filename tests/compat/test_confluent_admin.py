"""Administration through confluent-kafka."""

# Its typed package re-exports without saying so, and leaves some functions untyped.
# mypy: disable-error-code="attr-defined, no-untyped-call"

from contextlib import closing

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions

from tests.compat.clients.client import DEADLINE_S, Record
from tests.compat.clients.confluent import ConfluentClient
from tests.compat.reading import read
from tests.eventually import eventually
from tests.proofs import CONFLUENT

pytestmark = pytest.mark.proves(*CONFLUENT, "admin: topics, partitions, configs, offsets, records, groups, cluster")

NOON_MS = 1_735_732_800_000
RECORDS = [Record(None, str(number).encode(), NOON_MS + number) for number in range(5)]


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def client(bootstrap: str) -> ConfluentClient:
    return ConfluentClient(bootstrap)


def test_cluster_is_described(admin: AdminClient, bootstrap: str) -> None:
    cluster = admin.describe_cluster().result(DEADLINE_S)

    [node] = cluster.nodes
    assert (node.id, f"{node.host}:{node.port}") == (7, bootstrap)
    assert cluster.controller.id == 7
    assert cluster.cluster_id == admin.list_topics(timeout=DEADLINE_S).cluster_id


def test_topic_is_described_with_leader_replicas_and_isr(
    admin: AdminClient, client: ConfluentClient, topic: str
) -> None:
    client.create_topic(topic, partitions=2)

    description = admin.describe_topics(TopicCollection([topic]))[topic].result(DEADLINE_S)

    assert [partition.id for partition in description.partitions] == [0, 1]
    for partition in description.partitions:
        assert partition.leader.id == 7
        assert [replica.id for replica in partition.replicas] == [7]
        assert [replica.id for replica in partition.isr] == [7]
    assert not description.is_internal


def test_partitions_are_added_and_never_taken_away(admin: AdminClient, client: ConfluentClient, topic: str) -> None:
    client.create_topic(topic, partitions=2)

    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(DEADLINE_S)

    eventually(lambda: len(admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions) == 5, "5 partitions")
    for refused_count in (5, 3):
        refused = admin.create_partitions([NewPartitions(topic, refused_count)])[topic]
        with pytest.raises(KafkaException) as raised:
            refused.result(DEADLINE_S)
        assert raised.value.args[0].code() == KafkaError.INVALID_PARTITIONS


def test_topic_config_is_changed_incrementally(admin: AdminClient, client: ConfluentClient, topic: str) -> None:
    client.create_topic(topic, configs={"retention.ms": "1000000", "segment.bytes": "2000000"})

    alter_incrementally(admin, topic, ConfigEntry("retention.ms", "7", incremental_operation=AlterConfigOpType.SET))
    has_config(admin, topic, "retention.ms", "7", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    has_config(admin, topic, "segment.bytes", "2000000", ConfigSource.DYNAMIC_TOPIC_CONFIG)

    alter_incrementally(admin, topic, ConfigEntry("retention.ms", "", incremental_operation=AlterConfigOpType.DELETE))
    has_config(admin, topic, "retention.ms", "604800000", ConfigSource.DEFAULT_CONFIG)

    append = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    alter_incrementally(admin, topic, append)
    has_config(admin, topic, "cleanup.policy", "delete,compact", ConfigSource.DYNAMIC_TOPIC_CONFIG)

    subtract = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SUBTRACT)
    alter_incrementally(admin, topic, subtract)
    has_config(admin, topic, "cleanup.policy", "compact", ConfigSource.DYNAMIC_TOPIC_CONFIG)


def test_old_way_of_changing_configs_replaces_them_all(admin: AdminClient, client: ConfluentClient, topic: str) -> None:
    client.create_topic(topic, configs={"retention.ms": "1000000", "segment.bytes": "2000000"})
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"max.message.bytes": "12345"})

    [altered] = admin.alter_configs([resource]).values()
    altered.result(DEADLINE_S)

    has_config(admin, topic, "max.message.bytes", "12345", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    has_config(admin, topic, "retention.ms", "604800000", ConfigSource.DEFAULT_CONFIG)


def test_invalid_config_change_is_refused_and_changes_nothing(
    admin: AdminClient, client: ConfluentClient, topic: str
) -> None:
    client.create_topic(topic)
    for name, value in (("no.such.config", "1"), ("retention.ms", "soon"), ("min.insync.replicas", "0")):
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        with pytest.raises(KafkaException) as raised:
            alter_incrementally(admin, topic, entry)
        assert raised.value.args[0].code() == KafkaError.INVALID_CONFIG

    assert topic_config(admin, topic, "retention.ms")[0] == "604800000"


def test_configs_of_an_unknown_topic_are_not_described(admin: AdminClient, topic: str) -> None:
    [described] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()

    with pytest.raises(KafkaException) as raised:
        described.result(DEADLINE_S)
    assert raised.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_broker_configs_are_described(admin: AdminClient) -> None:
    [described] = admin.describe_configs([ConfigResource(ResourceType.BROKER, "7")]).values()

    configs = described.result(DEADLINE_S)

    assert configs["node.id"].value == "7"
    assert configs["message.max.bytes"].value == "1048588"


def test_offsets_are_listed_by_specification(admin: AdminClient, client: ConfluentClient, topic: str) -> None:
    client.create_topic(topic)
    with closing(client.writer()) as writer:
        for milliseconds in (5, 9, 7):
            writer.write(topic, [Record(None, b"", NOON_MS + milliseconds)])

    assert listed_offset(admin, topic, OffsetSpec.earliest()) == (0, -1)
    assert listed_offset(admin, topic, OffsetSpec.latest()) == (3, -1)
    assert listed_offset(admin, topic, OffsetSpec.max_timestamp()) == (1, NOON_MS + 9)
    assert listed_offset(admin, topic, OffsetSpec.for_timestamp(NOON_MS + 6)) == (1, NOON_MS + 9)


def test_records_are_deleted_up_to_an_offset_or_to_the_end(
    admin: AdminClient, client: ConfluentClient, topic: str
) -> None:
    client.create_topic(topic)
    with closing(client.writer()) as writer:
        writer.write(topic, RECORDS)

    for offset, low_watermark in ((2, 2), (-1, 5)):
        [deleted] = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
        assert deleted.result(DEADLINE_S).low_watermark == low_watermark
        assert client.log_start_offset(topic, 0) == low_watermark

    [refused] = admin.delete_records([TopicPartition(topic, 0, 99)]).values()
    with pytest.raises(KafkaException) as raised:
        refused.result(DEADLINE_S)
    assert raised.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_group_is_listed_and_described_while_it_lives_and_after(
    admin: AdminClient, client: ConfluentClient, topic: str, group: str
) -> None:
    client.create_topic(topic, partitions=2)
    with closing(client.member(group, [topic])) as member:
        eventually(lambda: (member.poll(), member.assignment())[1], "an assignment")
        eventually(lambda: described_state(admin, group) == ConsumerGroupState.STABLE, "a stable group")
        [living] = admin.describe_consumer_groups([group])[group].result(DEADLINE_S).members

        assert {(each.topic, each.partition) for each in living.assignment.topic_partitions} == {(topic, 0), (topic, 1)}
        assert living.host.lstrip("/").startswith("127.0.0.1")
        listed = admin.list_consumer_groups().result(DEADLINE_S).valid
        assert group in {each.group_id for each in listed}

    eventually(lambda: described_state(admin, group) == ConsumerGroupState.EMPTY, "an empty group")


def test_group_offsets_are_changed_listed_and_deleted_with_the_group(
    admin: AdminClient, client: ConfluentClient, topic: str, group: str
) -> None:
    client.create_topic(topic)
    offsets = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 3)])

    admin.alter_consumer_group_offsets([offsets])[group].result(DEADLINE_S)
    assert committed_offsets(admin, group) == {(topic, 0): 3}

    admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
    assert committed_offsets(admin, group) == {}
    with pytest.raises(KafkaException) as raised:
        admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
    assert raised.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


def test_group_with_members_is_not_deleted(admin: AdminClient, client: ConfluentClient, topic: str, group: str) -> None:
    client.create_topic(topic)
    with closing(client.member(group, [topic])) as member:
        eventually(lambda: (member.poll(), member.assignment())[1], "an assignment")
        with pytest.raises(KafkaException) as raised:
            admin.delete_consumer_groups([group])[group].result(DEADLINE_S)

    assert raised.value.args[0].code() == KafkaError.NON_EMPTY_GROUP


def test_deleting_a_topic_deletes_the_groups_offsets_for_it(
    admin: AdminClient, client: ConfluentClient, topic: str, group: str
) -> None:
    client.create_topic(topic)
    with closing(client.writer()) as writer:
        writer.write(topic, RECORDS)
    with closing(client.member(group, [topic])) as member:
        read(member, 5)
        member.commit()

    admin.delete_topics([topic])[topic].result(DEADLINE_S)

    eventually(lambda: committed_offsets(admin, group) == {}, "the offsets to be gone")


def alter_incrementally(admin: AdminClient, topic: str, entry: ConfigEntry) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    [altered] = admin.incremental_alter_configs([resource]).values()
    altered.result(DEADLINE_S)


def has_config(admin: AdminClient, topic: str, name: str, value: str, source: ConfigSource) -> None:
    """Wait for it: Apache Kafka's brokers learn of a change after it was answered."""
    expected = (value, source.value)
    eventually(lambda: topic_config(admin, topic, name) == expected, f"{name}={value} of {source.name}")


def topic_config(admin: AdminClient, topic: str, name: str) -> tuple[str, int]:
    """A config's value, and where it comes from."""
    [described] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    entry = described.result(DEADLINE_S)[name]
    return entry.value, entry.source


def listed_offset(admin: AdminClient, topic: str, specification: OffsetSpec) -> tuple[int, int]:
    asked = {TopicPartition(topic, 0): specification}
    [listed] = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED).values()
    found = listed.result(DEADLINE_S)
    return found.offset, found.timestamp


def described_state(admin: AdminClient, group: str) -> ConsumerGroupState:
    state: ConsumerGroupState = admin.describe_consumer_groups([group])[group].result(DEADLINE_S).state
    return state


def committed_offsets(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(DEADLINE_S)
    return {(each.topic, each.partition): each.offset for each in listed.topic_partitions}
