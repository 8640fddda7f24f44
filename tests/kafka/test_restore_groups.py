"""Consumer groups of a restore on a real Apache Kafka: committed where nothing is skipped, refused, and undone."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import Offset, PartitionIndex, TopicName
from quorate.kernel.ids import TopicPartition as PartitionName
from tests.backup_commands import Backups, consume, produce, run_quorate
from tests.eventually import eventually
from tests.kafka.secured_kafka import SecuredKafka
from tests.kafka.test_restore import back_up, create
from tests.restore_commands import Restores

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]


@pytest.fixture
def backups(kafka: SecuredKafka, tmp_path: Path) -> Backups:
    return Backups(tmp_path, kafka.bootstrap)


def commit(kafka: SecuredKafka, group: str, topic: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    positions = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()


def offsets_of(client: KafkaClient, group: str, topic: str) -> dict[int, int]:
    return {name.partition: found.offset for name, found in client.groups.offsets(group).items() if name.topic == topic}


def test_groups_are_committed_where_they_stood_and_rolled_back(
    kafka: SecuredKafka, client: KafkaClient, backups: Backups, name: str
) -> None:
    create(client, name, 2)
    for partition in range(2):
        produce(kafka.bootstrap, name, 100, partition=partition)
    client.topics.delete_records({PartitionName(TopicName(name), PartitionIndex(0)): Offset(30)})
    commit(kafka, f"{name}-group", name, {0: 50, 1: 100})
    commit(kafka, f"{name}-behind", name, {0: 10})
    back_up(backups, name)
    restores = Restores(backups, kafka.bootstrap)
    target = f"{name}-back"

    settings: dict[str, Any] = {"topic_mapping": {name: target}, "consumer_groups": {"include": [f"{name}-*"]}}
    report = restores.run_in_process(**settings)

    assert sorted(report.groups) == [f"{name}-behind", f"{name}-group"]
    assert offsets_of(client, f"{name}-group", target) == {0: 20, 1: 100}
    assert offsets_of(client, f"{name}-behind", target) == {0: 0}
    config = str(restores.write_config(**settings))
    shown = run_quorate("offsets", "show", "--config", config)
    assert f"{name}-group: {target}-0 at offset 20" in shown.output, shown
    mapped = run_quorate("offsets", "show", "--config", config, "--topic", target)
    assert f"{target}-0 offsets 0 to 69: source partition 0, offsets 30 to 99" in mapped.output, mapped

    undone = run_quorate("offsets", "rollback", "--config", config)

    assert undone.status == 0, undone
    assert offsets_of(client, f"{name}-group", target) == {}
    again = run_quorate("offsets", "apply", "--config", config)
    assert again.status == 0, again
    assert offsets_of(client, f"{name}-group", target) == {0: 20, 1: 100}


def test_active_group_is_refused_before_anything_is_written(
    kafka: SecuredKafka, client: KafkaClient, backups: Backups, name: str
) -> None:
    create(client, name)
    produce(kafka.bootstrap, name, 10)
    group = f"{name}-group"
    commit(kafka, group, name, {0: 5})
    back_up(backups, name)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    consumer.subscribe([name])

    def is_active() -> bool:
        consumer.poll(0.2)
        return any(each.is_active for each in client.groups.describe([group]).values())

    try:
        eventually(is_active, "the group to have a member", within_s=60)
        with pytest.raises(QuorateError, match=f"consumer group {group} is active at the target: stop its members"):
            Restores(backups, kafka.bootstrap).run_in_process(
                topic_mapping={name: f"{name}-back"}, consumer_groups={"include": ["*"]}
            )
    finally:
        consumer.close()
    assert f"{name}-back" not in client.cluster.metadata().topics


def test_groups_in_another_number_of_partitions_skip_nothing(
    kafka: SecuredKafka, client: KafkaClient, backups: Backups, name: str
) -> None:
    create(client, name, 12)
    for partition in range(12):
        produce(kafka.bootstrap, name, 50, partition=partition, first=1000 * partition)
    positions = {partition: (50, 20, 0, 49)[partition % 4] for partition in range(11)}  # The last was never read.
    commit(kafka, f"{name}-group", name, positions)
    back_up(backups, name)
    target = f"{name}-back"

    Restores(backups, kafka.bootstrap).run_in_process(
        topic_mapping={name: target}, partition_counts={name: 5}, consumer_groups={"include": [f"{name}-*"]}
    )

    committed = offsets_of(client, f"{name}-group", target)
    unread = {1000 * partition + number for partition in range(12) for number in range(positions.get(partition, 0), 50)}
    assert sorted(committed) == list(range(5))
    assert _keys_from(kafka, target, committed) >= unread


def _keys_from(kafka: SecuredKafka, topic: str, offsets: dict[int, int]) -> set[int]:
    return {
        int(key or b"")
        for partition, start in offsets.items()
        for offset, key, _ in consume(kafka.bootstrap, topic, partition)
        if offset is not None and offset >= start
    }
