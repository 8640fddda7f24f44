"""Every admin call, against Apache Kafka and a Quorate node alike."""

import time
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer

from quorate.client.admin.configs import ConfigResource
from quorate.client.admin.groups import OffsetAndMetadata
from quorate.client.admin.topics import NewTopic
from quorate.client.cluster_metadata import LiveBroker
from quorate.client.fetch.batches import IsolationLevel
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_TOPIC_ID, LeaderEpoch, Offset, PartitionIndex, TopicName, TopicPartition
from quorate.protocol.codes import ConfigSource, ResourceType
from tests.eventually import eventually
from tests.kafka.conftest import Cluster, OpenClient
from tests.kafka.secured_kafka import NODE_IDS, SecuredKafka
from tests.kafka.writing import values, write


def partition_of(topic: str, index: int = 0) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(index))


def created(client: KafkaClient, topic: str, **settings: object) -> str:
    client.topics.create([NewTopic(name=TopicName(topic), **{"partitions": 1, **settings})])  # type: ignore[arg-type]
    return topic


def test_brokers_are_known_by_the_ids_and_addresses_that_the_cluster_gives(
    kafka: SecuredKafka, open_client: OpenClient
) -> None:
    one_server = open_client(kafka.nodes[100].bootstrap)
    metadata = one_server.cluster.metadata([])
    assert {node_id: str(broker.address) for node_id, broker in metadata.brokers.items()} == {
        node_id: kafka.nodes[node_id].bootstrap for node_id in NODE_IDS
    }
    assert {broker.rack for broker in metadata.brokers.values()} == {f"rack-{node_id}" for node_id in NODE_IDS}
    assert metadata.cluster_id


def test_a_bootstrap_server_that_is_down_does_not_matter(kafka: SecuredKafka, open_client: OpenClient) -> None:
    client = open_client(("127.0.0.1:1", "127.0.0.1:2", kafka.nodes[4001].bootstrap))
    assert len(client.cluster.metadata([]).brokers) == 3


def test_all_topics_with_their_ids(any_client: KafkaClient, name: str) -> None:
    ids = any_client.topics.create([NewTopic(name=TopicName(name), partitions=3)])
    metadata = eventually(
        lambda: (found := any_client.cluster.metadata()) and (found if name in found.topics else None), "the topic"
    )
    topic = metadata.topics[TopicName(name)]
    assert topic.topic_id == ids[TopicName(name)] != NO_TOPIC_ID
    assert set(topic.partitions) == {0, 1, 2}
    assert all(partition.leader in metadata.brokers for partition in topic.partitions.values())


def test_a_topic_that_does_not_exist_is_not_created_by_asking(any_client: KafkaClient, name: str) -> None:
    for _ in range(2):
        metadata = any_client.cluster.metadata([name])
        assert metadata.topics[TopicName(name)].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_describe_cluster(any_client: KafkaClient) -> None:
    description = any_client.cluster.describe()
    metadata = any_client.cluster.metadata([])
    assert description.cluster_id == metadata.cluster_id
    assert dict(description.brokers) == dict(metadata.brokers)
    assert all(isinstance(broker, LiveBroker) for broker in description.brokers.values())


def test_topics_are_created_with_configs_and_deleted(any_client: KafkaClient, name: str) -> None:
    configs = {"retention.ms": "123456", "cleanup.policy": "compact"}
    ids = any_client.topics.create([NewTopic(name=TopicName(name), partitions=2, configs=configs)])
    assert isinstance(ids[TopicName(name)], UUID)
    described = any_client.configs.describe_topics([name])[TopicName(name)]
    assert {key: entry.value for key, entry in described.items() if entry.is_set_on_topic} == configs
    any_client.topics.delete([name])
    eventually(
        lambda: any_client.cluster.metadata([name]).topics[TopicName(name)].error is not ErrorCode.NONE, "the deletion"
    )


def test_a_topic_that_exists_is_refused_by_name(any_client: KafkaClient, name: str) -> None:
    created(any_client, name)
    with pytest.raises(KafkaError, match=name) as caught:
        created(any_client, name)
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_validate_only_creates_nothing(any_client: KafkaClient, name: str) -> None:
    any_client.topics.create([NewTopic(name=TopicName(name), partitions=1)], validate_only=True)
    assert any_client.cluster.metadata([name]).topics[TopicName(name)].error is not ErrorCode.NONE


def test_replicas_can_be_assigned(client: KafkaClient, name: str) -> None:
    assignments = {PartitionIndex(0): (4001, 7), PartitionIndex(1): (100, 4001)}
    client.topics.create([NewTopic(name=TopicName(name), assignments=assignments)])  # type: ignore[arg-type]
    partitions = eventually(lambda: client.cluster.metadata([name]).topics[TopicName(name)].partitions, "the topic")
    assert {index: partition.replicas for index, partition in partitions.items()} == assignments


def test_partitions_are_added(any_client: KafkaClient, name: str) -> None:
    created(any_client, name, partitions=2)
    any_client.topics.add_partitions({name: 5})
    eventually(lambda: len(any_client.cluster.metadata([name]).topics[TopicName(name)].partitions) == 5, "5 partitions")
    with pytest.raises(KafkaError, match=name):
        any_client.topics.add_partitions({name: 1})


def test_configs_change_one_by_one(any_client: KafkaClient, name: str) -> None:
    created(any_client, name, configs={"retention.ms": "1000", "segment.bytes": "1048576"})
    any_client.configs.alter_topic(name, values={"cleanup.policy": "compact"}, delete=["retention.ms"])

    def own_configs() -> dict[str, str | None]:
        found = any_client.configs.describe_topics([name])[TopicName(name)]
        return {key: entry.value for key, entry in found.items() if entry.is_set_on_topic}

    eventually(lambda: own_configs() == {"cleanup.policy": "compact", "segment.bytes": "1048576"}, "the new configs")
    with pytest.raises(KafkaError, match=name) as caught:
        any_client.configs.alter_topic(name, values={"retention.ms": "never"})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_each_broker_describes_its_own_configs(client: KafkaClient) -> None:
    resources = [ConfigResource(ResourceType.BROKER, str(node_id)) for node_id in NODE_IDS]
    found = client.configs.describe(resources)
    assert {resource.name: found[resource]["node.id"].value for resource in resources} == {
        str(node_id): str(node_id) for node_id in NODE_IDS
    }
    assert found[resources[0]]["node.id"].source is ConfigSource.STATIC_BROKER


def test_the_size_of_a_log_is_that_of_its_files(any_cluster: Cluster, any_client: KafkaClient, name: str) -> None:
    created(any_client, name, partitions=3)
    partitions = [partition_of(name, index) for index in range(3)]
    nothing_yet = dict.fromkeys(partitions, 0)
    eventually(lambda: any_client.cluster.log_bytes(partitions) == nothing_yet, "leaders that tell the sizes")
    write(any_cluster.bootstrap, name, 1, values(50, size_bytes=1000))
    sizes = any_client.cluster.log_bytes(partitions)
    assert sizes[partitions[0]] == sizes[partitions[2]] == 0
    assert 50_000 < sizes[partitions[1]] < 60_000


def test_offsets_at_both_ends_and_at_a_time(any_cluster: Cluster, any_client: KafkaClient, name: str) -> None:
    created(any_client, name, partitions=2)
    partitions = [partition_of(name, 0), partition_of(name, 1)]
    write(any_cluster.bootstrap, name, 1, values(10))
    time.sleep(0.01)
    middle_ms = int(time.time() * 1000)
    write(any_cluster.bootstrap, name, 1, values(5))
    earliest = any_client.offsets.earliest(partitions)
    latest = any_client.offsets.latest(partitions)
    assert [earliest[partition].offset for partition in partitions] == [0, 0]
    assert [latest[partition].offset for partition in partitions] == [0, 15]
    at_middle = any_client.offsets.at_timestamp(dict.fromkeys(partitions, middle_ms))
    assert [at_middle[partition].offset for partition in partitions] == [None, 10]
    assert at_middle[partitions[1]].timestamp >= middle_ms


def test_the_last_stable_offset_stays_before_an_open_transaction(
    kafka: SecuredKafka, client: KafkaClient, name: str
) -> None:
    created(client, name)
    partition = partition_of(name)
    write(kafka.bootstrap, name, 0, values(3))
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"open", partition=0)
    producer.flush(30)
    assert client.offsets.latest([partition])[partition].offset == 4
    assert client.offsets.latest([partition], IsolationLevel.READ_COMMITTED)[partition].offset == 3
    (open_one,) = [
        active
        for active in client.producers.describe([partition])[partition]
        if active.current_transaction_start_offset is not None
    ]
    assert open_one.current_transaction_start_offset == 3
    producer.abort_transaction(30)
    # The marker is written after the transaction's end is acknowledged.
    eventually(
        lambda: client.offsets.latest([partition], IsolationLevel.READ_COMMITTED)[partition].offset == 5, "the marker"
    )


def test_the_end_of_a_leader_epoch(any_cluster: Cluster, any_client: KafkaClient, name: str) -> None:
    created(any_client, name)
    partition = partition_of(name)
    write(any_cluster.bootstrap, name, 0, values(4))
    epoch = any_client.offsets.latest([partition])[partition].leader_epoch
    end = any_client.offsets.epoch_ends({partition: epoch})[partition]
    assert (end.leader_epoch, end.end_offset) == (epoch, 4)
    assert any_client.offsets.epoch_ends({partition: LeaderEpoch(epoch + 5)})[partition].end_offset == -1


def test_records_are_deleted_from_the_start(any_cluster: Cluster, any_client: KafkaClient, name: str) -> None:
    created(any_client, name)
    partition = partition_of(name)
    write(any_cluster.bootstrap, name, 0, values(10))
    assert any_client.topics.delete_records({partition: Offset(6)}) == {partition: 6}
    assert any_client.offsets.earliest([partition])[partition].offset == 6
    with pytest.raises(KafkaError, match=f"{name}-0") as caught:
        any_client.topics.delete_records({partition: Offset(1000)})
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_group_is_listed_described_and_its_offsets_are_read(
    any_cluster: Cluster, any_client: KafkaClient, name: str
) -> None:
    created(any_client, name, partitions=2)
    write(any_cluster.bootstrap, name, 0, values(3))
    consumer = Consumer({"bootstrap.servers": any_cluster.bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    eventually(lambda: consumer.poll(0.1), "a record", within_s=60)
    consumer.commit(asynchronous=False)
    description = any_client.groups.describe([name])[name]  # type: ignore[index]
    assert description.state == "Stable"
    assert description.is_active
    assert [member.assignment for member in description.members] == [(partition_of(name, 0), partition_of(name, 1))]
    with pytest.raises(KafkaError, match=name):
        any_client.groups.commit_offsets(name, {partition_of(name): OffsetAndMetadata(offset=Offset(0))})
    consumer.close()
    (listed,) = [group for group in any_client.groups.list() if group.group_id == name]
    assert listed.protocol_type == "consumer"
    assert any_client.groups.offsets(name)[partition_of(name)].offset >= 1
    assert not any_client.groups.describe([name])[name].is_active  # type: ignore[index]


def test_offsets_are_committed_for_a_group_without_members_and_deleted(any_client: KafkaClient, name: str) -> None:
    created(any_client, name, partitions=2)
    offsets = {
        partition_of(name, 0): OffsetAndMetadata(offset=Offset(7), metadata="seven"),
        partition_of(name, 1): OffsetAndMetadata(offset=Offset(0), leader_epoch=LeaderEpoch(0)),
    }
    any_client.groups.commit_offsets(name, offsets)
    assert any_client.groups.offsets(name) == offsets
    any_client.groups.delete_offsets(name, [partition_of(name, 0)])
    assert list(any_client.groups.offsets(name)) == [partition_of(name, 1)]
    any_client.groups.delete([name])
    assert any_client.groups.offsets(name) == {}
    assert any_client.groups.describe([name])[name].state == "Dead"  # type: ignore[index]


def test_a_group_that_does_not_exist_has_no_offsets(any_client: KafkaClient, name: str) -> None:
    assert any_client.groups.offsets(name) == {}


def test_an_unknown_topic_is_one_clear_error(any_client: KafkaClient, name: str) -> None:
    with pytest.raises(KafkaError, match=name) as caught:
        any_client.offsets.latest([partition_of(name)])
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_no_broker_goes_by_the_question_whether_it_is_empty(any_client: KafkaClient) -> None:
    """It has fields of Quorate's own in a request that would remove a broker."""
    before = any_client.brokers.registered().brokers.keys()
    for node_id in before:
        any_client.brokers.is_empty(node_id)
    assert any_client.brokers.registered().brokers.keys() == before
