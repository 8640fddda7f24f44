"""Real clusters whose nodes have certificates: nothing of them is readable between nodes, and strangers get nothing."""

import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from quorate.transport.peers.frames import FrameKind, encode_frame
from quorate.transport.peers.hello import encode_hello
from tests.chaos.links import Links
from tests.eventually import eventually
from tests.integration.peer_nodes import new_hello
from tests.peers.child_process import ChildProcess, free_port
from tests.peers.node_certificates import NodeAuthority, dialling_context
from tests.peers.quorate_cluster import IDS, QuorateCluster
from tests.peers.quorate_node import QUORATE, START_TIMEOUT_S, ready_line

TOPIC = "orders-of-alice"
VALUE = b"what alice has ordered"
OURS, OTHERS = NodeAuthority(), NodeAuthority()
CLUSTER_ID = b"tests"


def write_and_read(cluster: QuorateCluster, topic: str, count: int = 100) -> None:
    """On all replicas, and back from each of its leaders."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=3)])[topic].result(20)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    refused: list[object] = []
    for number in range(count):
        producer.produce(topic, VALUE, partition=number % 3, on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(30) == 0
    assert refused == [None] * count
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers"})
    with closing(consumer):
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
        found: list[bytes | None] = []

        def read() -> bool:
            found.extend(message.value() for message in consumer.consume(count, 0.2))
            return len(found) >= count

        eventually(read, "the records")
    assert found == [VALUE] * count


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateCluster]:
    with QuorateCluster(tmp_path_factory.mktemp("cluster"), authority=OURS) as running:
        yield running


@pytest.mark.parametrize("authority", [None, OURS], ids=["secret alone", "certificates"])
def test_what_nodes_say_to_each_other_is_readable_only_without_certificates(
    tmp_path: Path, authority: NodeAuthority | None
) -> None:
    links = Links(Random(1))
    links.recorded = bytearray()
    try:
        with QuorateCluster(tmp_path, authority=authority, links=links) as running:
            write_and_read(running, TOPIC)
        said = bytes(links.recorded)
    finally:
        links.close()
    assert len(said) > 10_000
    for words in (VALUE, TOPIC.encode(), CLUSTER_ID):
        assert (words in said) is (authority is None)


def peer_address(cluster: QuorateCluster, node_id: int) -> tuple[str, int]:
    host, port = str(cluster.nodes[node_id].settings["peer_listen"]).rsplit(":", 1)
    return host, int(port)


def say(cluster: QuorateCluster, target: int, said: bytes, context: ssl.SSLContext | None) -> bytes:
    """All that comes back."""
    heard = b""
    with socket.create_connection(peer_address(cluster, target), timeout=20) as plain:
        try:
            connection = plain if context is None else context.wrap_socket(plain)
            connection.sendall(said)
            while data := connection.recv(65536):
                heard += data
        except (ssl.SSLError, ConnectionError):
            pass
    return heard


STRANGERS = {
    "no TLS": None,
    "no certificate": dialling_context(None),
    "another authority's": dialling_context(OTHERS.issue(100)),
    "self-signed": dialling_context(OTHERS.key_and_chain),
    "expired": dialling_context(OURS.issue(100, began_days_ago=3)),
    "a client's": dialling_context(OURS.issue(None)),
}


def test_a_stranger_gets_nothing_of_a_cluster_with_certificates(cluster: QuorateCluster) -> None:
    said = b"".join(encode_frame(FrameKind.HELLO, [encode_hello(new_hello(100, 7, cluster_id="tests"))]))
    for who, context in STRANGERS.items():
        for node_id in IDS:
            heard = say(cluster, node_id, said, context)
            assert len(heard) in ((0, 7) if context is None else (0,)), (who, heard)
    write_and_read(cluster, "after-strangers")
    for node in cluster.nodes.values():
        assert "peer refused" in node.log_text()
        assert "peer connection lost" not in node.log_text()
        assert "Traceback" not in node.log_text()


def test_the_keys_are_not_in_sight(cluster: QuorateCluster) -> None:
    for node_id, node in cluster.nodes.items():
        path = Path(str(node.settings["peer_certificate_file"]))
        lines = path.read_text().split("PRIVATE KEY-----")[1].split()[:-1]
        assert len(lines) > 1
        assert not [line for line in lines if line in node.log_text()], node_id
        for file in node.data_dir.rglob("*"):
            assert not file.is_file() or lines[0].encode() not in file.read_bytes()


@pytest.mark.parametrize(
    ("own", "mode", "sentence"),
    [
        pytest.param(None, 0o600, "own.pem cannot be read: No such file or directory", id="missing"),
        pytest.param(OURS.issue(7), 0o604, "can be read or changed by others than its owner: chmod 600", id="open"),
        pytest.param(OURS.issue(7, began_days_ago=3), 0o600, "certificate has expired", id="expired"),
    ],
)
def test_a_mistake_is_one_sentence_and_the_node_does_not_start(
    tmp_path: Path, own: bytes | None, mode: int, sentence: str
) -> None:
    path, authorities = tmp_path / "own.pem", tmp_path / "ca.pem"
    authorities.write_bytes(OURS.certificate)
    if own is not None:
        path.write_bytes(own)
        path.chmod(mode)
    (tmp_path / "node.toml").write_text(
        f'node_id = 7\ndata_dir = "{tmp_path}/data"\nlisten = "127.0.0.1:{free_port()}"\n'
        f'peer_listen = "127.0.0.1:{free_port()}"\npeer_certificate_file = "{path}"\npeer_ca_file = "{authorities}"\n'
    )
    serve = [str(QUORATE), "serve", "--config", str(tmp_path / "node.toml")]
    ended = subprocess.run(serve, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    told = [line for line in (ended.stdout + ended.stderr).splitlines() if "peer_certificate_file" in line]
    assert len(told) == 1
    assert sentence in told[0]
    assert "Traceback" not in ended.stdout + ended.stderr


def test_a_node_joins_with_a_certificate_and_doctor_finds_nothing(cluster: QuorateCluster, tmp_path: Path) -> None:
    assert cluster.files is not None
    cluster.files.put_certificate(8, OURS)
    server = ("--bootstrap-server", cluster.bootstrap)
    command = [str(QUORATE), "cluster", "add-node", *server, "--node-id", "8", "--data", str(tmp_path / "8")]
    command += ["--listen", f"127.0.0.1:{free_port()}", "--peer-listen", f"127.0.0.1:{free_port()}"]
    for key, path in cluster.files.keys(8).items():
        command += [f"--{key.replace('_', '-')}", path]
    joined = ChildProcess(command, tmp_path / "8.log")
    try:
        joined.wait_for_output(ready_line, "the new node to be ready", START_TIMEOUT_S)
        for name in ("status", "doctor"):
            told = subprocess.run([str(QUORATE), "cluster", name, *server], capture_output=True, text=True, check=False)
            assert told.returncode == 0, told
    finally:
        joined.stop()
    remove = [str(QUORATE), "cluster", "remove-node", *server, "--node-id", "8", "--force", "--yes"]
    subprocess.run(remove, capture_output=True, check=True)


def test_certificates_and_authority_are_replaced_while_the_cluster_runs(cluster: QuorateCluster) -> None:
    files = cluster.files
    assert files is not None

    def changed(times: int) -> bool:
        return all(node.log_text().count("peer credentials changed") == times for node in cluster.nodes.values())

    def lost() -> int:
        return sum(node.log_text().count("peer connection lost") for node in cluster.nodes.values())

    before = lost()
    files.put_authorities(OURS, OTHERS)
    eventually(lambda: changed(1), "both authorities to count")
    for node_id in IDS:
        files.put_certificate(node_id, OTHERS)
    eventually(lambda: changed(2), "the new certificates")
    assert lost() == before
    files.put_authorities(OTHERS)
    eventually(lambda: changed(3), "the new authority alone")
    # What rests on the old one ends.
    eventually(lambda: lost() > before, "an end")
    write_and_read(cluster, "after-rotation")
    heard = say(cluster, IDS[0], b"", dialling_context(OURS.issue(100)))
    assert heard == b""

    files.put_certificate(IDS[1], OURS)  # Not any more.
    eventually(lambda: "peer credentials not changed" in cluster.nodes[IDS[1]].log_text(), "the refusal")
    write_and_read(cluster, "after-mistake")
    assert all("Traceback" not in node.log_text() for node in cluster.nodes.values())
