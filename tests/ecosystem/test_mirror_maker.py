"""MirrorMaker 2 from Apache Kafka to Quorate: records, topic configs and the offsets of groups."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from tests.compat.clients.confluent import ConfluentClient
from tests.ecosystem.programs import KAFKA_VERSION, start_java, write_properties
from tests.eventually import eventually
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.child_process import ChildProcess
from tests.peers.jars import PeersUnavailableError
from tests.peers.quorate_cluster import QuorateCluster

MIRROR_MAKER = ("MirrorMaker 2", KAFKA_VERSION)
TOPIC, MIRRORED, GROUP = "orders", "old.orders", "billing"
PARTITIONS = 3
RECORDS = 900
PER_PARTITION = RECORDS // PARTITIONS
# Generous: it only keeps a broken broker from hanging the tests.
DEADLINE_S = 150

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("ecosystem_jars"), pytest.mark.timeout(4 * DEADLINE_S)]

# Between two looks at what MirrorMaker does about once in a second.
PAUSE_S = 0.5


@pytest.fixture(scope="module")
def apache_kafka() -> Iterator[ApacheKafka]:
    try:
        running = ApacheKafka.start()
    except PeersUnavailableError as error:
        pytest.skip(str(error))
    with running:
        yield running


@pytest.fixture(scope="module")
def mirror_maker(
    cluster: QuorateCluster, apache_kafka: ApacheKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ChildProcess]:
    """Mirrors a topic that has records, a config of its own, and a group that has read it."""
    folder = tmp_path_factory.mktemp("mirror")
    fill(apache_kafka.bootstrap)
    properties = write_properties(folder / "mirror.properties", settings(apache_kafka.bootstrap, cluster.bootstrap))
    process = start_java("org.apache.kafka.connect.mirror.MirrorMaker", properties, log=folder / "mirror.log")
    yield process
    process.kill()


@pytest.mark.proves(*MIRROR_MAKER, "records from Apache Kafka: keys, values, partitions")
def test_records_are_mirrored(cluster: QuorateCluster, apache_kafka: ApacheKafka, mirror_maker: ChildProcess) -> None:
    def mirrored() -> list[list[tuple[bytes, bytes]]] | None:
        assert mirror_maker.running, mirror_maker.output()[-6000:]
        ends = end_offsets(cluster.bootstrap, MIRRORED)
        return read_all(cluster.bootstrap, MIRRORED) if sum(ends) == RECORDS else None

    assert eventually(mirrored, "the records", DEADLINE_S) == read_all(apache_kafka.bootstrap, TOPIC)


@pytest.mark.proves(*MIRROR_MAKER, "topic configs from Apache Kafka")
def test_configs_are_mirrored(cluster: QuorateCluster, apache_kafka: ApacheKafka, mirror_maker: ChildProcess) -> None:
    def synced(value: str) -> bool:
        assert mirror_maker.running, mirror_maker.output()[-6000:]
        return config(cluster.bootstrap, MIRRORED, "retention.ms") == value

    eventually(lambda: synced("987654321"), "the configs of the topic's creation", DEADLINE_S)
    set_config(apache_kafka.bootstrap, TOPIC, "retention.ms", "123456789")
    eventually(lambda: synced("123456789"), "the changed config", DEADLINE_S)


@pytest.mark.proves(*MIRROR_MAKER, "group offsets from Apache Kafka")
def test_offsets_of_groups_are_mirrored(cluster: QuorateCluster, mirror_maker: ChildProcess) -> None:
    """The group has read everything. MirrorMaker's checkpoints may stand before that, never after."""

    def synced() -> list[int] | None:
        assert mirror_maker.running, mirror_maker.output()[-6000:]
        offsets = committed(cluster.bootstrap, GROUP, MIRRORED)
        return offsets if len(offsets) == PARTITIONS and min(offsets) > 0 else None

    assert all(0 < offset <= PER_PARTITION for offset in eventually(synced, "the offsets", DEADLINE_S))


def settings(source: str, target: str) -> dict[str, object]:
    intervals = ("refresh.topics", "refresh.groups", "sync.topic.configs", "emit.checkpoints", "sync.group.offsets")
    return {
        "clusters": "old, new",
        "old.bootstrap.servers": source,
        "new.bootstrap.servers": target,
        "old->new.enabled": "true",
        "new->old.enabled": "false",
        "topics": TOPIC,
        "groups": GROUP,
        "tasks.max": 1,
        "replication.factor": 1,
        "checkpoints.topic.replication.factor": 1,
        "heartbeats.topic.replication.factor": 1,
        "offset-syncs.topic.replication.factor": 1,
        "offset.storage.replication.factor": 1,
        "config.storage.replication.factor": 1,
        "status.storage.replication.factor": 1,
        "offset.storage.partitions": 3,
        "emit.heartbeats.enabled": "false",
        "sync.group.offsets.enabled": "true",
        "sync.topic.acls.enabled": "false",
        # Every record's offset is told, so that the offsets of groups are translated as exactly as they can be.
        "offset.lag.max": 0,
        "new.offset.flush.interval.ms": 500,
        "plugin.discovery": "service_load",
        **{f"{interval}.interval.seconds": 1 for interval in intervals},
    }


def fill(bootstrap: str) -> None:
    ConfluentClient(bootstrap).create_topic(TOPIC, PARTITIONS, {"retention.ms": "987654321"})
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(TOPIC, f"value {number}", f"key {number}", number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    consumer.subscribe([TOPIC])
    eventually(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == PARTITIONS, "a member", DEADLINE_S)
    read = [TopicPartition(TOPIC, partition, PER_PARTITION) for partition in range(PARTITIONS)]
    consumer.commit(offsets=read, asynchronous=False)
    consumer.close()


def read_all(bootstrap: str, topic: str) -> list[list[tuple[bytes, bytes]]]:
    """Keys and values of each partition, in their order."""
    ends = end_offsets(bootstrap, topic)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    records: list[list[tuple[bytes, bytes]]] = [[] for _ in range(PARTITIONS)]

    def complete() -> bool:
        for message in consumer.consume(500, timeout=0.5):
            assert message.error() is None, message.error()
            records[message.partition() or 0].append((message.key() or b"", message.value() or b""))
        return sum(map(len, records)) >= sum(ends)

    eventually(complete, f"the records of {topic}", DEADLINE_S)
    consumer.close()
    return records


def end_offsets(bootstrap: str, topic: str) -> Sequence[int]:
    """Of each partition; zeros while the topic is not there."""
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})) as consumer:
        partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        try:
            return [consumer.get_watermark_offsets(each, timeout=DEADLINE_S)[1] for each in partitions]
        except KafkaException:
            time.sleep(PAUSE_S)
            return [0] * PARTITIONS


def set_config(bootstrap: str, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (altered,) = admin.incremental_alter_configs([resource]).values()
    altered.result(DEADLINE_S)


def config(bootstrap: str, topic: str, name: str) -> str | None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    try:
        time.sleep(PAUSE_S)
        return str(described.result(DEADLINE_S)[name].value)
    except KafkaException:
        return None


def committed(bootstrap: str, group: str, topic: str) -> list[int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    request = ConsumerGroupTopicPartitions(group)
    answer = admin.list_consumer_group_offsets([request])[group].result(DEADLINE_S)
    time.sleep(PAUSE_S)
    return [each.offset for each in answer.topic_partitions if each.topic == topic and each.offset >= 0]
