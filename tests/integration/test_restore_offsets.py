"""Restores that keep offsets, into a cluster of three processes: records, log ends and groups are where they were."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from quorate.backup.spark.restore.write_task import WriteTask
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import Offset, PartitionIndex, TopicName
from quorate.kernel.ids import TopicPartition as PartitionName
from tests.backup_commands import Backups, create_topics, produce
from tests.eventually import eventually
from tests.peers.quorate_cluster import QuorateCluster
from tests.peers.quorate_node import QuorateNode
from tests.restore_commands import Restores, all_records, client_of, topic_configs
from tests.spark_session import EventBefore, InThisProcess, run_in_process

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(300)

DELETED, ENDED, WHOLE = range(3)  # Partitions whose first half, all and nothing were deleted.
RECORDS = 400
HEADERS: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("a", None), ("", b"\x00\xff")]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    configs = {"log.retention.check.interval.ms": 50, "log.cleaner.backoff.ms": 50, "offsets.topic.num.partitions": 1}
    with QuorateNode.start(tmp_path_factory.mktemp("source"), configs=configs) as node:
        fill_orders(node)
        fill_compacted(node)
        commit(node.bootstrap, "readers", {("orders", DELETED): 50, ("orders", ENDED): RECORDS, ("orders", WHOLE): 7})
        commit(node.bootstrap, "in-a-hole", {("compacted", 0): 5})
        yield node


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateCluster]:
    with QuorateCluster(tmp_path_factory.mktemp("target")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def backups(source: QuorateNode, tmp_path_factory: pytest.TempPathFactory) -> Backups:
    backups = Backups(tmp_path_factory.mktemp("backup"), source.bootstrap)
    config = backups.write_config(topics={"include": ["orders", "compacted"]})
    assert run_in_process(backups, config, InThisProcess) is not None
    return backups


@pytest.fixture
def restores(target: QuorateCluster, backups: Backups) -> Restores:
    return Restores(backups, target.bootstrap)


@pytest.fixture(scope="module")
def clients(source: QuorateNode, target: QuorateCluster) -> Iterator[tuple[KafkaClient, KafkaClient]]:
    with client_of(source.bootstrap) as first, client_of(target.bootstrap) as second:
        yield first, second


def fill_orders(node: QuorateNode) -> None:
    create_topics(node.bootstrap, NewTopic("orders", 3, config={"retention.ms": "86400000"}))
    for partition in range(3):
        produce(node.bootstrap, "orders", RECORDS, partition=partition, settings={"batch.num.messages": 10})
    names = {partition: PartitionName(TopicName("orders"), PartitionIndex(partition)) for partition in range(3)}
    with client_of(node.bootstrap) as client:
        client.topics.delete_records({names[DELETED]: Offset(RECORDS // 2 + 3), names[ENDED]: Offset(RECORDS)})


def fill_compacted(node: QuorateNode) -> None:
    configs = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.01"}
    create_topics(node.bootstrap, NewTopic("compacted", 1, config=configs))
    producer = Producer({"bootstrap.servers": node.bootstrap, "batch.num.messages": 20})
    for number in range(60):
        producer.produce("compacted", str(number), f"key-{number % 3}", timestamp=10**12 + number, headers=HEADERS)
    producer.produce("compacted", None, "key-1", timestamp=1)
    producer.flush()
    with client_of(node.bootstrap) as client:

        def is_compacted() -> bool:
            producer.produce("compacted", "x", "last")  # Closes the segment before it, in its time.
            producer.flush()
            return sum(each.key != b"last" for each in all_records(client, "compacted", 0)) == 3

        eventually(is_compacted, "the log to be compacted", within_s=60)
        configs = {"min.cleanable.dirty.ratio": "1", "min.compaction.lag.ms": "86400000", "segment.ms": "86400000"}
        client.configs.alter_topic("compacted", values=configs)
        assert [each.offset for each in all_records(client, "compacted", 0)][:3] == [57, 59, 60]


def commit(bootstrap: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    positions = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()


def bounds(client: KafkaClient, topic: str, partition: int) -> tuple[int | None, int | None]:
    name = PartitionName(TopicName(topic), PartitionIndex(partition))
    return client.offsets.earliest([name])[name].offset, client.offsets.latest([name])[name].offset


def assert_same(clients: tuple[KafkaClient, KafkaClient], topics: dict[str, str]) -> None:
    """Everything that the records have, their offsets first, and where the logs begin and end."""
    source, target = clients
    for topic, restored in topics.items():
        for partition in range(3 if topic == "orders" else 1):
            assert bounds(target, restored, partition) == bounds(source, topic, partition)
            assert all_records(target, restored, partition) == all_records(source, topic, partition)
        assert topic_configs(target, restored) == topic_configs(source, topic)


def names(suffix: str) -> dict[str, str]:
    return {"orders": f"orders-{suffix}", "compacted": f"compacted-{suffix}"}


def test_records_logs_and_groups_are_where_they_were(
    restores: Restores, clients: tuple[KafkaClient, KafkaClient], target: QuorateCluster
) -> None:
    renamed = names("back")
    refused: list[str] = []

    def note(error: KafkaError | None, message: Message) -> None:
        refused.append("" if error is None else error.name())

    def write_meanwhile() -> None:
        for settings in ({}, {"enable.idempotence": True}, {"transactional.id": "meanwhile"}):
            producer = Producer({"bootstrap.servers": target.bootstrap, **settings})
            if "transactional.id" in settings:
                producer.init_transactions(30)
                producer.begin_transaction()
            producer.produce("orders-back", "foreign", partition=WHOLE, on_delivery=note)
            producer.flush(30)
            if "transactional.id" in settings:
                producer.abort_transaction(30)

    report = restores.run_in_process(
        lambda: EventBefore(WriteTask, write_meanwhile),
        preserve_offsets=True,
        topic_mapping=renamed,
        consumer_groups={"include": ["*"]},
    )

    assert refused == ["POLICY_VIOLATION"] * 3
    assert report.preserve_offsets
    assert_same(clients, renamed)
    committed = {(each.topic, each.partition): at.offset for each, at in clients[1].groups.offsets("readers").items()}
    assert committed == {("orders-back", DELETED): 50, ("orders-back", ENDED): RECORDS, ("orders-back", WHOLE): 7}
    assert [at.offset for at in clients[1].groups.offsets("in-a-hole").values()] == [5]
    assert read_as_group(target.bootstrap, "in-a-hole", "compacted-back")[:3] == [57, 59, 60]
    produce(target.bootstrap, "orders-back", 1, partition=ENDED)
    assert bounds(clients[1], "orders-back", ENDED) == (RECORDS, RECORDS + 1)


def read_as_group(bootstrap: str, group: str, topic: str) -> list[int | None]:
    """The offsets of the records that a stock consumer of the group gets."""
    settings = {"enable.partition.eof": True, "auto.offset.reset": "error", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **settings})
    consumer.subscribe([topic])
    found: list[int | None] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, f"group {group} got nothing"
        if message.error() is not None:
            break
        found.append(message.offset())
    consumer.close()
    return found


def test_leader_killed_in_the_middle_changes_nothing(
    restores: Restores, clients: tuple[KafkaClient, KafkaClient], target: QuorateCluster
) -> None:
    renamed = names("killed")
    name = PartitionName(TopicName("orders-killed"), PartitionIndex(WHOLE))
    settings: dict[str, Any] = {"topic_mapping": renamed, "rate_limit_bytes_per_second": 60_000}

    def has_written(records: int) -> bool:
        topics = clients[1].cluster.metadata().topics
        return name.topic in topics and (bounds(clients[1], *name)[1] or 0) > records

    # The nodes end with the thread that starts them, so the restore is what goes to another one.
    with ThreadPoolExecutor(1) as beside:
        restoring = beside.submit(restores.run_in_process, preserve_offsets=True, **settings)
        eventually(lambda: has_written(RECORDS // 4), "records to be written", within_s=60)
        leader = clients[1].cluster.metadata([name.topic]).topics[name.topic].partitions[name.partition].leader
        assert leader is not None
        target.kill([leader])
        target.restart([leader])
        restoring.result(timeout=120)

    assert_same(clients, renamed)


def test_what_cannot_keep_its_offsets_is_refused_before_anything_is_written(
    restores: Restores, clients: tuple[KafkaClient, KafkaClient], target: QuorateCluster
) -> None:
    create_topics(target.bootstrap, NewTopic("orders-there", 3))
    cases: list[tuple[str, dict[str, Any]]] = [
        ("leave topic orders out of restore.partition_counts", {"partition_counts": {"orders": 5}}),
        ("target topic orders-there is there already: delete it", {"topic_mapping": names("there")}),
    ]
    before = set(clients[1].cluster.metadata().topics)
    for sentence, settings in cases:
        with pytest.raises(QuorateError, match=sentence):
            restores.run_in_process(preserve_offsets=True, **settings)
    assert set(clients[1].cluster.metadata().topics) == before


def test_state_of_a_restore_cannot_be_given_to_a_topic_that_is_there(clients: tuple[KafkaClient, KafkaClient]) -> None:
    with pytest.raises(QuorateError, match="when it is created"):
        clients[0].configs.alter_topic("orders", values={"quorate.restore.producer.id": "7"})
