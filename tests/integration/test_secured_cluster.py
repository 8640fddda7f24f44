"""Three nodes with an authorizer: stock clients over SASL_SSL, each with no more rights than its work needs."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compat.clients.client import DEADLINE_S
from tests.compat.clients.confluent import ConfluentReader
from tests.compat.test_groups import polled_assignments
from tests.eventually import eventually
from tests.peers.secured_cluster import SecuredCluster
from tests.peers.secured_users import (
    Right,
    add_users,
    allow,
    group,
    librdkafka_settings,
    take_away,
    topic,
    topics_from,
    transactional_ids_from,
)
from tests.proofs import CONFLUENT

LEAST_RIGHTS = pytest.mark.proves(
    *CONFLUENT, "SASL_SSL and ACLs on three nodes: transactions, groups of both protocols, a leader's kill -9"
)
PARTITIONS = 4
TOPICS = ("orders", "copies", "events", "ledger")
TRANSACTIONS = transactional_ids_from("copier-", "Write")
USERS: dict[str, list[Right]] = {
    "writer": [topic(name, "Write") for name in ("orders", "events", "ledger")],
    "copier": [topic("orders", "Read"), topic("copies", "Write"), group("copiers", "Read"), TRANSACTIONS],
    "member": [topic("events", "Read"), group("members-classic", "Read"), group("members-consumer", "Read")],
    "auditor": [topic(name, "Read") for name in TOPICS] + [group("audit", "Read")],
    "maker": [topics_from("made-", "Create", "Write")],
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with SecuredCluster(tmp_path_factory.mktemp("secured")) as running:
        add_users(running, USERS)
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for made in admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in TOPICS]).values():
            made.result(DEADLINE_S)
        yield running


def write(cluster: SecuredCluster, user: str, name: str, values: Sequence[str]) -> None:
    producer = Producer(librdkafka_settings(cluster, user))
    refused: list[KafkaError] = []

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    for number, value in enumerate(values):
        producer.produce(name, value, partition=number % PARTITIONS, on_delivery=told)
    assert producer.flush(DEADLINE_S) == 0
    if refused:
        raise KafkaException(refused[0])


def committed_values(cluster: SecuredCluster, name: str, count: int) -> list[str]:
    """So many, of a group that has not read before; in the order of their partitions."""
    settings = librdkafka_settings(cluster, "auditor") | {"group.id": "audit", "auto.offset.reset": "earliest"}
    with closing(Consumer(settings | {"enable.auto.commit": False, "enable.partition.eof": True})) as consumer:
        consumer.subscribe([name])
        return [text for _, text in sorted(_positioned(consumer, count))]


def _positioned(consumer: Consumer, count: int) -> list[tuple[tuple[int, int], str]]:
    """Until each partition has ended and there are so many."""
    found: list[tuple[tuple[int, int], str]] = []
    ended: set[int] = set()

    def all_read() -> bool:
        for message in consumer.consume(500, 0.2):
            partition = message.partition() or 0
            error = message.error()
            if error is None:
                ended.discard(partition)
                found.append(((partition, message.offset() or 0), (message.value() or b"").decode()))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(partition)
            else:
                raise KafkaException(error)
        return len(ended) == PARTITIONS and len(found) >= count

    eventually(all_read, f"{count} records", DEADLINE_S)
    return found


@LEAST_RIGHTS
def test_a_copier_needs_rights_for_what_it_reads_writes_and_commits(cluster: SecuredCluster) -> None:
    values = [f"order-{number}" for number in range(200)]
    write(cluster, "writer", "orders", values)

    copied = copy_orders(cluster, "copier-1", len(values))

    assert copied == len(values)
    assert sorted(committed_values(cluster, "copies", len(values))) == sorted(f"copy of {each}" for each in values)


def copy_orders(cluster: SecuredCluster, transactional_id: str, count: int) -> int:
    """Read, write and commit in transactions, one in ten of which is aborted and tried again."""
    settings = librdkafka_settings(cluster, "copier")
    producer = Producer(settings | {"transactional.id": transactional_id})
    producer.init_transactions(DEADLINE_S)
    of_group = {"group.id": "copiers", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    copied = 0
    with closing(Consumer(settings | of_group | {"enable.auto.commit": False})) as consumer:
        consumer.subscribe(["orders"])
        while copied < count:
            messages = [message for message in consumer.consume(20, 1.0) if _is_record(message)]
            if not messages:
                continue
            producer.begin_transaction()
            _copy(producer, messages)
            producer.abort_transaction(DEADLINE_S)
            producer.begin_transaction()
            _copy(producer, messages)
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), DEADLINE_S)
            producer.commit_transaction(DEADLINE_S)
            copied += len(messages)
    return copied


def _copy(producer: Producer, messages: Sequence[Message]) -> None:
    for message in messages:
        producer.produce("copies", f"copy of {(message.value() or b'').decode()}", partition=message.partition() or 0)
    producer.flush(DEADLINE_S)


def _is_record(message: Message) -> bool:
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    return True


def test_a_transactional_id_that_one_may_not_use_is_refused_to_a_producer_that_may_write(
    cluster: SecuredCluster,
) -> None:
    producer = Producer(librdkafka_settings(cluster, "copier") | {"transactional.id": "somebody-elses"})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(DEADLINE_S)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_right_that_is_taken_away_ends_the_next_transaction(cluster: SecuredCluster) -> None:
    producer = Producer(librdkafka_settings(cluster, "copier") | {"transactional.id": "copier-2"})
    producer.init_transactions(DEADLINE_S)
    take_away(cluster, "copier", TRANSACTIONS)
    try:
        with pytest.raises(KafkaException) as refused:
            commit_one(producer)
        assert refused.value.args[0].code() in (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            KafkaError._STATE,  # Of a producer that has met it in the background.
            KafkaError._FATAL,
        )
    finally:
        allow(cluster, "copier", TRANSACTIONS)


def commit_one(producer: Producer) -> None:
    producer.begin_transaction()
    producer.produce("copies", "never seen")
    producer.commit_transaction(DEADLINE_S)


@LEAST_RIGHTS
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_share_the_partitions_of_a_topic_that_they_may_read(cluster: SecuredCluster, protocol: str) -> None:
    settings = member_settings(cluster, protocol, f"members-{protocol}")
    readers = []
    for _ in range(2):
        consumer = Consumer(settings)
        consumer.subscribe(["events"])
        readers.append(ConfluentReader(consumer))
    eventually(lambda: [len(each) for each in polled_assignments(readers)] == [2, 2], "two partitions for each")

    write(cluster, "writer", "events", [f"{protocol}-{number}" for number in range(40)])
    seen: list[bytes] = []

    def all_seen() -> bool:
        for reader in readers:
            values = [stored.record.value or b"" for stored in reader.poll()]
            seen.extend(value for value in values if value.startswith(protocol.encode()))
        return len(seen) >= 40

    eventually(all_seen, "the records of all partitions")
    assert sorted(seen) == sorted(b"%s-%d" % (protocol.encode(), n) for n in range(40))
    for reader in readers:
        reader.commit()
        reader.close()


def member_settings(cluster: SecuredCluster, protocol: str, name: str) -> dict[str, Any]:
    own = {"group.id": name, "group.protocol": protocol, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    return librdkafka_settings(cluster, "member") | own


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_one_may_not_read_is_refused(cluster: SecuredCluster, protocol: str) -> None:
    refused: list[int] = []
    with closing(Consumer(member_settings(cluster, protocol, "strangers"))) as consumer:
        consumer.subscribe(["events"])

        def told() -> bool:
            message = consumer.poll(0.5)
            error = None if message is None else message.error()
            refused.extend([] if error is None else [error.code()])
            return bool(refused)

        eventually(told, "the refusal")
    assert refused[0] == KafkaError.GROUP_AUTHORIZATION_FAILED


@LEAST_RIGHTS
def test_nothing_is_lost_or_doubled_when_a_leader_dies_under_a_producer(cluster: SecuredCluster) -> None:
    producer = Producer(librdkafka_settings(cluster, "writer") | {"enable.idempotence": True, "linger.ms": 5})
    victim = leader_of(cluster, "ledger", 0)
    acknowledged: list[str] = []
    failed: list[KafkaError] = []

    def told(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.append((message.value() or b"").decode())
        else:
            failed.append(error)

    def write_some(first: int) -> None:
        for number in range(first, first + 500):
            producer.produce("ledger", str(number), partition=number % PARTITIONS, on_delivery=told)
            producer.poll(0.002)

    write_some(0)
    eventually(lambda: producer.poll(0.1) >= 0 and acknowledged, "the first answers")
    killer = threading.Timer(0.3, cluster.kill, [[victim]])
    killer.start()
    try:
        write_some(500)
        killer.join()
        write_some(1000)
        assert producer.flush(DEADLINE_S) == 0
    finally:
        killer.join()
        cluster.restart([victim])

    assert failed == []
    assert len(acknowledged) == 1500
    found = committed_values(cluster, "ledger", 1500)
    expected = [str(number) for partition in range(PARTITIONS) for number in range(partition, 1500, PARTITIONS)]
    assert found == expected


def leader_of(cluster: SecuredCluster, name: str, partition: int) -> int:
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(name).topics
    return int(topics[name].partitions[partition].leader)


def test_each_listener_names_its_own_addresses(cluster: SecuredCluster) -> None:
    secured = AdminClient(librdkafka_settings(cluster, "auditor"))
    plain = AdminClient({"bootstrap.servers": cluster.bootstrap})
    plain_ports = {node_id: node.port for node_id, node in cluster.nodes.items()}
    for admin, ports in ((secured, cluster.secured_ports), (plain, plain_ports)):
        in_metadata = {broker.id: broker.port for broker in admin.list_topics(timeout=DEADLINE_S).brokers.values()}
        described = admin.describe_cluster(request_timeout=DEADLINE_S).result(DEADLINE_S)
        assert in_metadata == {node.id: node.port for node in described.nodes} == ports


def test_one_sees_the_topics_that_one_may_describe_and_may_make_those_of_ones_prefix(cluster: SecuredCluster) -> None:
    write(cluster, "maker", "made-by-me", ["first"])

    seen = AdminClient(librdkafka_settings(cluster, "maker")).list_topics(timeout=DEADLINE_S).topics
    assert set(seen) == {"made-by-me"}
    with pytest.raises(KafkaException) as refused:
        write(cluster, "maker", "of-others", ["first"])
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    everything = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=DEADLINE_S).topics
    assert "of-others" not in everything
