"""Transactions of the Python clients, and Apache Kafka's tool for them."""

import asyncio
import gc
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from quorate.coordination.transactions.core.records import encode_key, encode_value
from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.records.batch import read_header
from quorate.records.builder import build_batch
from quorate.records.record import Record
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from quorate.storage.os_disk import OsDisk
from tests.compat.clients.client import DEADLINE_S
from tests.compat.clients.confluent import ConfluentClient
from tests.eventually import eventually
from tests.peers.kafka_tools import ToolShell
from tests.proofs import AIOKAFKA, CONFLUENT, KAFKA_TOOLS
from tests.unit.coordination.transactions.core.conversation import ID, P0, P1, Conversation


def confluent_producer(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(DEADLINE_S)
    return producer


def write(producer: Producer, topic: str, values: Sequence[str], *, commits: bool = True) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.flush(DEADLINE_S)
    if commits:
        producer.commit_transaction(DEADLINE_S)
    else:
        producer.abort_transaction(DEADLINE_S)


def committed_values(bootstrap: str, topic: str, *, isolation: str = "read_committed") -> list[str]:
    """Everything up to the end of partition 0, as far as this isolation level sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([ConfluentPartition(topic, 0, 0)])
    values: list[str] = []
    try:
        while True:
            message: Message | None = consumer.poll(DEADLINE_S)
            assert message is not None, "the end of the partition never came"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                return values
            value = message.value()
            assert value is not None
            values.append(value.decode())
    finally:
        consumer.close()


@pytest.fixture
def made_topic(bootstrap: str, topic: str) -> str:
    ConfluentClient(bootstrap).create_topic(topic)
    return topic


@pytest.mark.proves(*CONFLUENT, "transactions: commit, abort, fencing, offsets")
def test_confluent_committed_records_are_read_and_aborted_ones_are_not(bootstrap: str, made_topic: str) -> None:
    producer = confluent_producer(bootstrap, made_topic)

    write(producer, made_topic, ["a", "b"])
    write(producer, made_topic, ["aborted"], commits=False)
    write(producer, made_topic, ["c"])

    assert committed_values(bootstrap, made_topic) == ["a", "b", "c"]
    everything = committed_values(bootstrap, made_topic, isolation="read_uncommitted")
    assert everything == ["a", "b", "aborted", "c"]


@pytest.mark.proves(*CONFLUENT, "transactions: commit, abort, fencing, offsets")
def test_confluent_second_instance_aborts_and_fences_the_first(bootstrap: str, made_topic: str) -> None:
    first = confluent_producer(bootstrap, made_topic)
    first.begin_transaction()
    first.produce(made_topic, "first")
    first.flush(DEADLINE_S)

    second = confluent_producer(bootstrap, made_topic)
    write(second, made_topic, ["second"])

    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(DEADLINE_S)
    assert refused.value.args[0].fatal()
    assert committed_values(bootstrap, made_topic) == ["second"]


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.proves(*CONFLUENT, "transactions: commit, abort, fencing, offsets")
def test_confluent_offsets_are_part_of_the_transaction(
    bootstrap: str, made_topic: str, group: str, commits: bool
) -> None:
    write(confluent_producer(bootstrap, f"{made_topic}-source"), made_topic, ["a", "b"])
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([made_topic])
    try:
        assert len(consumer.consume(2, DEADLINE_S)) == 2
        producer = confluent_producer(bootstrap, made_topic)
        producer.begin_transaction()
        producer.produce(f"{made_topic}-copies", "A")
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), DEADLINE_S)
        if commits:
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.abort_transaction(DEADLINE_S)

        (committed,) = consumer.committed([ConfluentPartition(made_topic, 0)], DEADLINE_S)
    finally:
        consumer.close()

    assert committed.offset == (2 if commits else -1001)
    copies = committed_values(bootstrap, f"{made_topic}-copies")
    assert copies == (["A"] if commits else [])


@pytest.mark.proves(*AIOKAFKA, "transactions: commit, abort, fencing, offsets")
def test_aiokafka_commits_aborts_and_is_fenced(bootstrap: str, made_topic: str, group: str) -> None:
    asyncio.run(_aiokafka(bootstrap, made_topic, group))
    # A fenced producer leaves errors that nobody asks for. Python tells of them when it collects them, which in the
    # middle of an import breaks that import.
    gc.collect()


async def _aiokafka(bootstrap: str, topic: str, group: str) -> None:
    source = TopicPartition(topic, 0)
    first = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    await first.start()
    async with first.transaction():
        await first.send_and_wait(topic, b"a")
        await first.send_offsets_to_transaction({source: 1}, group)
    await first.begin_transaction()
    await first.send_and_wait(topic, b"aborted")
    await first.send_offsets_to_transaction({source: 2}, group)
    await first.abort_transaction()
    second = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    await second.start()
    async with second.transaction():
        await second.send_and_wait(topic, b"b")
    with pytest.raises(ProducerFenced):
        async with first.transaction():
            await first.send_and_wait(topic, b"zombie")
    await second.stop()
    await first.stop()

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, isolation_level="read_committed", enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign([source])
        assert await consumer.committed(source) == 1
        consumer.seek(source, 0)
        records = [await asyncio.wait_for(consumer.getone(), DEADLINE_S) for _ in range(2)]
        assert [record.value for record in records] == [b"a", b"b"]
    finally:
        await consumer.stop()


@pytest.mark.peer
@pytest.mark.proves(*KAFKA_TOOLS, "transactions: kafka-transactions lists, describes, finds and aborts; kafka-features")
def test_kafka_transactions_lists_describes_and_finds(tool_shell: ToolShell, bootstrap: str, made_topic: str) -> None:
    def run(*arguments: str) -> str:
        return tool_shell.run("kafka-transactions", "--bootstrap-server", bootstrap, *arguments)

    producer = confluent_producer(bootstrap, made_topic)
    producer.begin_transaction()
    producer.produce(made_topic, "open")
    producer.flush(DEADLINE_S)

    listed = run("list")
    assert re.search(rf"{made_topic}\s+\d+\s+\d+\s+Ongoing", listed)
    described = run("describe", "--transactional-id", made_topic)
    assert re.search(rf"{made_topic}\s.*\sOngoing\s.*\s{made_topic}-0", described)
    producers = run("describe-producers", "--topic", made_topic, "--partition", "0")
    assert re.search(r"^\d+\s+\d+\s+-?\d+\s+\d+\s+\d+\s+0", producers.splitlines()[-1])  # Open from offset 0 on.
    assert made_topic not in run("find-hanging", "--topic", made_topic)

    producer.commit_transaction(DEADLINE_S)
    # Its markers are written after the producer has its answer.
    complete = rf"{made_topic}\s+\d+\s+\d+\s+CompleteCommit"
    eventually(lambda: re.search(complete, run("list")) is not None, "the transaction to be complete")


@pytest.mark.peer
@pytest.mark.proves(*KAFKA_TOOLS, "transactions: kafka-transactions lists, describes, finds and aborts; kafka-features")
def test_kafka_transactions_aborts_a_hanging_transaction(
    tool_shell: ToolShell, bootstrap: str, made_topic: str
) -> None:
    producer = confluent_producer(bootstrap, made_topic)
    producer.begin_transaction()
    producer.produce(made_topic, "open")
    producer.flush(DEADLINE_S)
    assert committed_values(bootstrap, made_topic) == []

    where = ("--topic", made_topic, "--partition", "0", "--start-offset", "0")
    tool_shell.run("kafka-transactions", "--bootstrap-server", bootstrap, "abort", *where)

    write(confluent_producer(bootstrap, f"{made_topic}-other"), made_topic, ["next"])
    assert committed_values(bootstrap, made_topic) == ["next"]


@pytest.mark.peer
@pytest.mark.proves(*KAFKA_TOOLS, "transactions: kafka-transactions lists, describes, finds and aborts; kafka-features")
def test_kafka_features_shows_the_transaction_version(tool_shell: ToolShell, bootstrap: str) -> None:
    described = tool_shell.run("kafka-features", "--bootstrap-server", bootstrap, "describe")

    (line,) = (line for line in described.splitlines() if "transaction.version" in line)
    assert re.search(r"SupportedMinVersion: 0\s+SupportedMaxVersion: 2\s+FinalizedVersionLevel: 2", line)


@pytest.mark.peer
@pytest.mark.proves(*KAFKA_TOOLS, "kafka-dump-log: the transaction coordinator's records")
def test_kafka_dump_log_reads_the_log_of_transactions(tool_shell: ToolShell, tmp_path: Path) -> None:
    coordinator = Conversation()
    producer = coordinator.new_producer()
    coordinator.add(producer, P0, P1)
    coordinator.end(producer, commits=True)
    coordinator.write_markers()
    log = PartitionLog.open(OsDisk(), str(tmp_path / "__transaction_state-0"), LogConfig())
    batch = build_batch(
        Record(Offset(index), 1_700_000_000_000, encode_key(record), encode_value(record))
        for index, record in enumerate(coordinator.log)
    )
    log.append_as_leader(
        memoryview(bytearray(batch)), [read_header(batch)], leader_epoch=LeaderEpoch(0), now_ms=1_700_000_000_000
    )
    log.close()

    segment = tmp_path / "__transaction_state-0" / "00000000000000000000.log"
    dump = tool_shell.run("kafka-dump-log", "--transaction-log-decoder", "--files", str(segment))

    values = [json.loads(value)["data"] for value in re.findall(r"payload: (.*)", dump)]
    assert re.findall(r'key: .*"transactionalId":"([^"]*)"', dump) == [ID] * 4
    assert [value["transactionStatus"] for value in values] == [0, 1, 2, 4]
    assert [value["producerEpoch"] for value in values] == [0, 0, 1, 1]
    both = [{"topic": "orders", "partitionIds": [0, 1]}]
    assert [value["transactionPartitions"] for value in values] == [None, both, both, []]
    assert [value.get("clientTransactionVersion", 0) for value in values] == [0, 2, 2, 2]
