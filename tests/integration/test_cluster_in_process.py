"""The cluster for other people's tests, used as they would: with a stock client."""

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from quorate.kernel.errors import QuorateError
from quorate.testing import ClusterInProcess
from tests.eventually import eventually

QUIET = {"log_level": 0}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess(nodes=(7, 100, 4001), configs={"num.partitions": 2}) as running:
        yield running


def produce(cluster: ClusterInProcess, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", **QUIET})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def consume(cluster: ClusterInProcess, topic: str, count: int) -> set[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"readers-of-{topic}",
            "auto.offset.reset": "earliest",
            **QUIET,
        }
    )
    consumer.subscribe([topic])
    found: set[bytes | None] = set()
    for _ in range(60):
        found |= {message.value() for message in consumer.consume(100, timeout=0.5) if not message.error()}
        if len(found) >= count:
            break
    consumer.close()
    return found


def test_stock_client_writes_and_reads(cluster: ClusterInProcess) -> None:
    produce(cluster, "greetings", ["a", "b", "c"])

    assert consume(cluster, "greetings", 3) == {b"a", b"b", b"c"}


@pytest.mark.parametrize(
    ("does", "sentence"),
    [
        (lambda cluster: cluster.kill(9), "this cluster has no node 9: its nodes are 7, 100, 4001"),
        (lambda cluster: cluster.stop(7, 9), "this cluster has no node 9"),
        (lambda cluster: cluster.kill(7, 7), "node 7 is named twice"),
        (lambda cluster: cluster.restart(9), "this cluster has no node 9"),
        (lambda cluster: cluster.restart(7), "node 7 is running"),
        (lambda cluster: cluster.address_of(9), "this cluster has no node 9"),
    ],
    ids=["kill", "stop", "kill twice", "restart", "restart a running one", "address_of"],
)
def test_node_that_is_not_there_is_a_sentence(
    cluster: ClusterInProcess, does: Callable[[ClusterInProcess], object], sentence: str
) -> None:
    with pytest.raises(QuorateError, match=sentence):
        does(cluster)
    # Nothing was done to the others that were named.
    with pytest.raises(QuorateError, match="node 7 is running"):
        cluster.restart(7)


def test_node_that_was_killed_is_not_killed_again() -> None:
    with ClusterInProcess(nodes=3) as cluster:
        cluster.kill(2)
        with pytest.raises(QuorateError, match="node 2 is not running"):
            cluster.kill(2)


def test_cluster_outside_of_its_block_says_how_it_is_used() -> None:
    with pytest.raises(QuorateError, match="with statement"):
        print(ClusterInProcess(nodes=1).bootstrap_servers)


def test_lost_peers_and_fenced_brokers_are_warnings(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="quorate"), ClusterInProcess(nodes=3) as cluster:
        assert all(f"quorum leader changed node={node} " in caplog.text for node in cluster.node_ids)
        caplog.clear()
        cluster.kill(2)
        eventually(lambda: "broker fenced node=2" in caplog.text, "the killed node to be fenced")

    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert any(line.startswith("peer connection lost ") and "peer=2" in line for line in warnings)
    assert any(line.startswith("broker fenced node=2 reason=") for line in warnings)


def test_node_can_be_killed_and_started_again(cluster: ClusterInProcess) -> None:
    produce(cluster, "kept", ["before"])
    cluster.kill(100)
    produce(cluster, "kept", ["without"])
    cluster.restart(100)
    cluster.stop(7)
    produce(cluster, "kept", ["after"])
    cluster.restart(7)

    assert consume(cluster, "kept", 3) == {b"before", b"without", b"after"}


def test_whole_cluster_can_be_killed_and_started_again(cluster: ClusterInProcess) -> None:
    produce(cluster, "survivor", ["x"])

    cluster.kill(*cluster.node_ids)
    cluster.restart(*cluster.node_ids)

    assert consume(cluster, "survivor", 1) == {b"x"}


def test_configs_of_the_test_are_the_nodes_configs(cluster: ClusterInProcess) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    admin.create_topics([NewTopic("default")])["default"].result()

    described = admin.list_topics("default", timeout=10).topics["default"]
    assert len(described.partitions) == 2
    assert {len(partition.replicas) for partition in described.partitions.values()} == {3}


def test_folder_of_ones_own_is_kept_for_the_next_cluster(tmp_path: Path) -> None:
    with ClusterInProcess(nodes=1, folder=tmp_path) as first:
        produce(first, "kept", ["x"])

    with ClusterInProcess(nodes=1, folder=tmp_path) as second:
        assert consume(second, "kept", 1) == {b"x"}


def test_mistakes_are_told() -> None:
    with pytest.raises(QuorateError, match="at least one node"):
        ClusterInProcess(nodes=0)
    with ClusterInProcess(nodes=1) as single, pytest.raises(QuorateError, match="is running"):
        single.restart(1)


def test_pytest_gives_tests_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(
        "from confluent_kafka.admin import AdminClient\n"
        "def test_it(quorate_cluster):\n"
        "    admin = AdminClient({'bootstrap.servers': quorate_cluster.bootstrap_servers})\n"
        "    assert len(admin.list_topics(timeout=10).brokers) == 3\n"
        "def test_it_secured(quorate_secured_cluster):\n"
        "    admin = AdminClient(quorate_secured_cluster.client_settings('librdkafka'))\n"
        "    assert len(admin.list_topics(timeout=10).brokers) == 3\n"
    )

    command = [sys.executable, "-m", "pytest", "-q", "-p", "quorate.testing.pytest_plugin", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_topic_deleted_while_a_node_was_down_is_gone_from_its_disk_too(tmp_path: Path) -> None:
    with ClusterInProcess(nodes=(7, 100, 4001), folder=tmp_path) as cluster:
        produce(cluster, "doomed", ["a"])
        produce(cluster, "kept", ["b"])
        assert list(tmp_path.rglob("doomed-*"))
        cluster.stop(100)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
        admin.delete_topics(["doomed"])["doomed"].result()
        assert list(tmp_path.rglob("doomed-*"))  # On the node that is down.

        cluster.restart(100)

        assert not list(tmp_path.rglob("doomed-*"))
        assert len(list(tmp_path.rglob("kept-0"))) == 3
