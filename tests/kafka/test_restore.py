"""Restores into a real Apache Kafka of three brokers: what is asked for, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer

from quorate.client.admin.topics import NewTopic
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import TopicName
from tests.backup_commands import Backups, produce
from tests.kafka.secured_kafka import SecuredKafka
from tests.restore_commands import Restores, topic_configs
from tests.spark_session import InThisProcess, run_in_process

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# 1970, far in the future, and out of order.
TIMES = (1, 4_102_444_800_000, 1_500_000_000_000, 1_400_000_000_000)
HEADERS: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("a", None), ("", b""), ("b", b"\x00\xff"), ("a", b"1")]
DAY_MS = "86400000"


@pytest.fixture
def backups(kafka: SecuredKafka, tmp_path: Path) -> Backups:
    return Backups(tmp_path, kafka.bootstrap)


def create(client: KafkaClient, name: str, partitions: int = 1, **configs: str) -> None:
    values = {key.replace("_", "."): value for key, value in configs.items()}
    values["message.timestamp.after.max.ms"] = str(2**63 - 1)
    new = NewTopic(name=TopicName(name), partitions=partitions, replication_factor=3, configs=values)
    client.topics.create([new])


def back_up(backups: Backups, *topics: str) -> None:
    report = run_in_process(backups, backups.write_config(topics={"include": list(topics)}), InThisProcess)
    assert report is not None
    assert report.state == "complete"


def consumed(bootstrap: str, topic: str, partition: int) -> list[tuple[object, ...]]:
    """Everything that a stock read-committed consumer sees, offsets apart."""
    from confluent_kafka import TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[tuple[object, ...]] = []
    while True:
        each = consumer.poll(30)
        assert each is not None, f"{topic}-{partition} did not come to its end"
        if each.error() is not None:
            break
        found.append((each.key(), each.value(), each.headers(), each.timestamp()))
    consumer.close()
    return found


def write_everything(kafka: SecuredKafka, topic: str) -> None:
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": codec, "linger.ms": 20})
        for number in range(40):
            value = None if number % 9 == 0 else f"{codec}-{number}".encode() * (number % 5)
            key = None if number % 7 == 0 else f"key-{number}".encode()
            headers = HEADERS if number % 3 == 0 else None
            producer.produce(topic, value, key, 0, timestamp=TIMES[number % 4], headers=headers)
        producer.flush()
    transactions: list[tuple[str, Callable[[Producer], object]]] = [
        ("committed", lambda producer: producer.commit_transaction()),
        ("aborted", lambda producer: producer.abort_transaction()),
    ]
    open_ones = []
    for name, end in transactions:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{topic}-{name}"})
        producer.init_transactions()
        producer.begin_transaction()
        open_ones.append((name, producer, end))
    for number in range(20):
        for name, producer, _ in open_ones:
            producer.produce(topic, f"{name}-{number}".encode(), partition=0)
            producer.flush()
    for _, producer, end in open_ones:
        end(producer)


def test_log_append_time_is_restored_as_it_was_or_new_as_asked(
    kafka: SecuredKafka, client: KafkaClient, backups: Backups, name: str
) -> None:
    create(client, name, message_timestamp_type="LogAppendTime")
    produce(kafka.bootstrap, name, 50)
    back_up(backups, name)

    Restores(backups, kafka.bootstrap).run_in_process(topic_mapping={name: f"{name}-back"})

    times = [each[3] for each in consumed(kafka.bootstrap, name, 0)]
    restored = [each[3] for each in consumed(kafka.bootstrap, f"{name}-back", 0)]
    assert [each[1] for each in restored] == [each[1] for each in times]  # type: ignore[index]
    assert topic_configs(client, f"{name}-back")["message.timestamp.type"] == "LogAppendTime"

    Restores(backups, kafka.bootstrap).run_in_process(topic_mapping={name: f"{name}-new"}, log_append_time="new")

    latest = max(each[1] for each in times)  # type: ignore[index]
    assert all(each[3][1] > latest for each in consumed(kafka.bootstrap, f"{name}-new", 0))  # type: ignore[index]


def test_record_larger_than_the_target_takes_is_refused_before_anything_is_written(
    kafka: SecuredKafka, client: KafkaClient, backups: Backups, name: str
) -> None:
    create(client, name, max_message_bytes="3000000")
    produce(kafka.bootstrap, name, 1, value_size=2_000_000, settings={"message.max.bytes": 3_000_000})
    back_up(backups, name)
    restores = Restores(backups, kafka.bootstrap)

    with pytest.raises(QuorateError, match=r"set max\.message\.bytes to 2000"):
        restores.run_in_process(topic_mapping={name: f"{name}-back"}, topic_configs={"max.message.bytes": "1000000"})

    assert f"{name}-back" not in client.cluster.metadata().topics


def test_too_few_brokers_are_refused_before_anything_is_written(
    kafka: SecuredKafka, client: KafkaClient, backups: Backups, name: str
) -> None:
    create(client, name)
    produce(kafka.bootstrap, name, 1)
    back_up(backups, name)

    with pytest.raises(QuorateError, match="replication factor 4 needs as many brokers and the target has 3"):
        Restores(backups, kafka.bootstrap).run_in_process(topic_mapping={name: f"{name}-back"}, replication_factor=4)

    assert f"{name}-back" not in client.cluster.metadata().topics


def test_point_in_time_and_another_number_of_partitions(
    kafka: SecuredKafka, client: KafkaClient, backups: Backups, name: str
) -> None:
    create(client, name, 3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 20, "partitioner": "murmur2_random"})
    for number in range(300):
        time_ms = 1_700_000_000_000 + number * 7919 % 300
        producer.produce(name, str(number).encode(), f"key-{number % 40}".encode(), timestamp=time_ms)
    producer.flush()
    back_up(backups, name)

    report = Restores(backups, kafka.bootstrap).run_in_process(
        topic_mapping={name: f"{name}-back"},
        partition_counts={name: 5},
        time_window={"end": "2023-11-14T22:13:20.150Z"},
    )

    written = [each for index in range(5) for each in consumed(kafka.bootstrap, f"{name}-back", index)]
    assert {each[1] for each in written} == {
        str(number).encode() for number in range(300) if number * 7919 % 300 <= 150
    }
    assert report.record_count == len(written) == 151
    partitions = {each[0]: index for index in range(5) for each in consumed(kafka.bootstrap, f"{name}-back", index)}
    assert partitions == stock_partitions(kafka, f"{name}-back", [f"key-{number}".encode() for number in range(40)])


def stock_partitions(kafka: SecuredKafka, topic: str, keys: list[bytes]) -> dict[object, int]:
    """Where a stock producer with the default partitioner puts these keys."""
    placed: dict[object, int] = {}

    def delivered(error: object, message: Message) -> None:
        partition = message.partition()
        assert partition is not None, error
        placed[message.key()] = partition

    producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(topic, b"", key, on_delivery=delivered)
    producer.flush()
    return placed
