"""Exactly once: records are copied in transactions while the nodes of the cluster are killed one after the other."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import cycle

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from quorate.client.admin.topics import NewTopic
from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.ids import TopicName
from quorate.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.eventually import eventually
from tests.integration.exactly_once_copier import Copier
from tests.integration.exactly_once_copier_java import JavaCopier
from tests.integration.wire_client import WireClient
from tests.peers.quorate_cluster import IDS, QuorateCluster
from tests.proofs import CONFLUENT, JAVA

IS_HEAVY = bool(os.environ.get("QUORATE_HEAVY"))
pytestmark = pytest.mark.timeout(1200 if IS_HEAVY else 300)

RECORDS = 20_000 if IS_HEAVY else 1_500
KILLS = 30 if IS_HEAVY else 2
SOURCE_PARTITIONS = 3
TARGET_PARTITIONS = 4
DEADLINE_S = 120.0

Copiers = Sequence[Copier | JavaCopier]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateCluster]:
    with QuorateCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def create(cluster: QuorateCluster, name: str, partitions: int) -> None:
    servers = tuple(node.bootstrap for node in cluster.nodes.values())
    with KafkaClient(ClientConfig(bootstrap_servers=servers)) as client:
        client.topics.create([NewTopic(name=TopicName(name), partitions=partitions)])


def write_source(bootstrap: str, first: int, last: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(first, last):
        producer.produce("source", str(number), partition=number % SOURCE_PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


def committed_values(bootstrap: str, topic: str, partitions: int) -> Counter[bytes]:
    """Everything in the topic that is committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: Counter[bytes] = Counter()
    ended: set[int | None] = set()
    deadline = time.monotonic() + DEADLINE_S
    try:
        while len(ended) < partitions:
            assert time.monotonic() < deadline, "the ends of the partitions never came"
            for message in consumer.consume(1_000, 1):
                error = message.error()
                value = message.value()
                if error is None and value is not None:
                    values[value] += 1
                elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
    finally:
        consumer.close()
    return values


def under_way(cluster: QuorateCluster) -> list[str]:
    """The transactions that have not come to their end, on any node."""
    request = ListTransactionsRequest(state_filters=["Ongoing", "PrepareCommit", "PrepareAbort"])
    found = []
    for node in cluster.nodes.values():
        with WireClient(node.bootstrap) as client:
            answer = client.call(request, 1, ListTransactionsResponse)
            assert answer.error_code == 0
            found += [state.transactional_id for state in answer.transaction_states]
    return found


@pytest.mark.proves(*CONFLUENT, "transactions: a copy loop is exact while nodes are killed")
def test_every_record_is_copied_exactly_once_while_nodes_are_killed(cluster: QuorateCluster) -> None:
    copy_while_nodes_are_killed(cluster, Copier)


@pytest.mark.heavy
@pytest.mark.peer
@pytest.mark.skipif(not IS_HEAVY, reason="takes minutes; runs with QUORATE_HEAVY=1")
@pytest.mark.proves(*JAVA, "transactions: a copy loop is exact while nodes are killed")
def test_java_copies_every_record_exactly_once_while_nodes_are_killed(
    cluster: QuorateCluster, kafka_classpath: str
) -> None:
    copy_while_nodes_are_killed(cluster, JavaCopier)


def copy_while_nodes_are_killed(cluster: QuorateCluster, copier_type: type[Copier] | type[JavaCopier]) -> None:
    create(cluster, "source", SOURCE_PARTITIONS)
    create(cluster, "target", TARGET_PARTITIONS)
    copiers = [
        copier_type(cluster.bootstrap, f"copier-{number}", source="source", target="target", group="copiers")
        for number in range(2)
    ]
    for copier in copiers:
        copier.start()
    try:
        _kill_until_all_is_copied(cluster, copiers)
    except AssertionError as error:
        raise AssertionError(f"{error}; what failed: {[copier.failures for copier in copiers]}") from error
    finally:
        for copier in copiers:
            copier.stop()

    expected = Counter(f"copy of {number}".encode() for number in range(RECORDS))
    assert committed_values(cluster.bootstrap, "target", TARGET_PARTITIONS) == expected
    eventually(lambda: not under_way(cluster), "all transactions to come to their end", DEADLINE_S)


def commits(copiers: Copiers) -> int:
    return sum(copier.committed for copier in copiers)


def wait_for_commits(copiers: Copiers, count: int) -> None:
    eventually(lambda: commits(copiers) >= count, f"{count} commits", DEADLINE_S)


def _kill_until_all_is_copied(cluster: QuorateCluster, copiers: Copiers) -> None:
    victims = cycle(IDS)
    for kill in range(KILLS):
        target = commits(copiers) + 1
        write_source(cluster.bootstrap, kill * RECORDS // KILLS, (kill + 1) * RECORDS // KILLS)
        wait_for_commits(copiers, target)
        victim = next(victims)
        cluster.kill([victim])
        cluster.restart([victim])

    eventually(
        lambda: committed_values(cluster.bootstrap, "target", TARGET_PARTITIONS).total() >= RECORDS,
        "all copies",
        DEADLINE_S,
    )
