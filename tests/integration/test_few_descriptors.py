"""Nodes that may have few files open: every partition that there is takes writes, and nothing times out."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from quorate.cli.options import open_client
from quorate.client.admin.topics import NewTopic
from quorate.kernel.ids import TopicName
from tests.eventually import eventually
from tests.peers.child_process import ChildProcess, free_port, free_ports_in_a_row
from tests.peers.quorate_node import QUORATE, START_TIMEOUT_S, ready_line

LIMIT = 256
PARTITIONS = 600
#: Soft and hard: nothing that the node does can raise it.
LIMITED = ["sh", "-c", f'ulimit -n {LIMIT} && exec "$@"', "sh"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Of a cluster that runs under the limit."""
    with limited_cluster(tmp_path, free_ports_in_a_row(3)) as folder:
        yield folder


@contextmanager
def limited_cluster(tmp_path: Path, port: int) -> Iterator[Path]:
    folder = tmp_path / "cluster"
    command = [*LIMITED, str(QUORATE), "up", "--nodes", "3", "--port", str(port), "--data", str(folder)]
    process = ChildProcess(command, tmp_path / "up.log")
    try:
        process.wait_for_output(ready_line, "the cluster to be ready", START_TIMEOUT_S)
        yield folder
    finally:
        process.stop()


def described(folder: Path) -> dict[str, Any]:
    cluster: dict[str, Any] = json.loads((folder / "cluster.json").read_text())
    return cluster


class SteadyProducer:
    """Has its connections before others come."""

    def __init__(self, bootstrap: str, first: bytes) -> None:
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "retries": 0, "enable.idempotence": False}
        self._producer = Producer(settings)
        self._errors: list[KafkaError] = []
        assert self.write_to_all(first) == []

    def write_to_all(self, value: bytes) -> list[KafkaError]:
        """One record into each partition, with acks=all; what went wrong."""
        self._errors = []
        for partition in range(PARTITIONS):
            self._producer.produce("many", value, partition=partition, on_delivery=self._delivered)
        assert self._producer.flush(60) == 0
        return self._errors

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(error)


def crowd_of(address: str, count: int) -> list[socket.socket]:
    host, _, port = address.rpartition(":")
    return [socket.create_connection((host, int(port)), timeout=30) for _ in range(count)]


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def read_all(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("many", partition, 0) for partition in range(PARTITIONS)])
    values: list[bytes | None] = []
    while len(values) < count:
        messages = consumer.consume(num_messages=count - len(values), timeout=30)
        assert messages, f"only {len(values)} of {count} records came"
        values += [message.value() for message in messages if message.error() is None]
    consumer.close()
    return [value for value in values if value is not None]


def test_600_partitions_under_a_limit_of_256_all_take_writes(folder: Path) -> None:
    """Seen before: they were created, and most writes timed out."""
    cluster = described(folder)
    bootstrap = cluster["bootstrap_servers"]
    with open_client(bootstrap) as client:
        client.topics.create([NewTopic(name=TopicName("many"), partitions=PARTITIONS, replication_factor=3)])

    producer = SteadyProducer(bootstrap, b"first")
    for value in (b"second", b"third"):
        assert producer.write_to_all(value) == []

    assert sorted(read_all(bootstrap, 3 * PARTITIONS)) == sorted([b"first", b"second", b"third"] * PARTITIONS)
    for node in cluster["nodes"]:
        assert len(os.listdir(f"/proc/{node['pid']}/fd")) <= LIMIT
        log = Path(node["log"]).read_text()
        assert f"WARNING quorate.broker.descriptors open files limit is low limit={LIMIT} " in log
        assert "Traceback" not in log
        assert " ERROR " not in log


def test_600_partitions_are_there_again_after_a_restart_and_go_when_they_are_deleted(tmp_path: Path) -> None:
    port = free_ports_in_a_row(3)
    with limited_cluster(tmp_path, port) as folder:
        bootstrap = described(folder)["bootstrap_servers"]
        with open_client(bootstrap) as client:
            client.topics.create([NewTopic(name=TopicName("many"), partitions=PARTITIONS, replication_factor=3)])
        SteadyProducer(bootstrap, b"before")
        for node in described(folder)["nodes"]:
            os.kill(node["pid"], signal.SIGKILL)

    with limited_cluster(tmp_path, port) as folder:
        bootstrap = described(folder)["bootstrap_servers"]
        eventually(partial(leads_all, bootstrap), "all partitions to have their replicas in sync")
        SteadyProducer(bootstrap, b"after")
        assert sorted(read_all(bootstrap, 2 * PARTITIONS)) == sorted([b"before", b"after"] * PARTITIONS)
        with open_client(bootstrap) as client:
            client.topics.delete([TopicName("many")])
        data = folder / "node-1" / "data"
        eventually(lambda: not list(data.glob("many-*")), "the logs to be removed")
        assert "Traceback" not in (folder / "node-1" / "node.log").read_text()


def leads_all(bootstrap: str) -> bool:
    with open_client(bootstrap) as client:
        partitions = client.cluster.metadata().topics[TopicName("many")].partitions.values()
    return all(partition.leader is not None and len(partition.isr) == 3 for partition in partitions)


def test_a_crowd_of_connections_keeps_no_log_and_no_peer_from_its_descriptors(folder: Path) -> None:
    """The connections that are too many are closed at once; what the node needs for itself is never theirs."""
    cluster = described(folder)
    bootstrap = cluster["bootstrap_servers"]
    with open_client(bootstrap) as client:
        client.topics.create([NewTopic(name=TopicName("many"), partitions=PARTITIONS, replication_factor=3)])
        producer = SteadyProducer(bootstrap, b"before")
        crowd = [crowd_of(node["kafka"], 2 * LIMIT) for node in cluster["nodes"]]
        assert all(is_closed(connections[-1]) for connections in crowd)
        assert producer.write_to_all(b"amid") == []
        for connection in (each for connections in crowd for each in connections):
            connection.close()
    assert sorted(read_all(bootstrap, 2 * PARTITIONS)) == sorted([b"before", b"amid"] * PARTITIONS)
    status = subprocess.run(
        [str(QUORATE), "cluster", "status", "--bootstrap-server", bootstrap],
        capture_output=True,
        text=True,
        check=False,
    )
    assert status.returncode == 1
    assert f"the process has run out of descriptors: the limit of open files is {LIMIT}" in status.stdout


def test_a_limit_that_no_node_can_work_with_is_told_at_the_start(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(f'node_id = 1\ndata_dir = "{tmp_path}/data"\nlisten = "127.0.0.1:{free_port()}"\n')

    ended = subprocess.run(
        ["sh", "-c", 'ulimit -n 64 && exec "$@"', "sh", str(QUORATE), "serve", "--config", str(config)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 1
    assert re.search(r"the limit of open files is 64 and a node needs 1\d\d: raise it", ended.stderr)
    assert "Traceback" not in ended.stderr
