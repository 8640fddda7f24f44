"""Strangers at the peer ports of a real cluster: it goes on as if they were not there."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from quorate.client.admin.topics import NewTopic
from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.ids import NO_DIRECTORY, DirectoryId, NodeId, Offset, Term, TopicName
from quorate.quorum.core.messages import Heartbeat, Message, TermNotice, TimeoutNow, VoteRequest, encode_message
from quorate.transport.peers.frames import Channel, FrameKind, encode_frame
from quorate.transport.peers.hello import Hello, decode_hello, encode_hello
from tests.peers.proven import prove
from tests.peers.quorate_cluster import IDS, QuorateCluster

STRANGER = NodeId(666)
INSANE_TERM = Term(2**62)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateCluster]:
    with QuorateCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def frames(*parts: tuple[FrameKind, bytes]) -> bytes:
    return b"".join(b"".join(encode_frame(kind, [body])) for kind, body in parts)


def hello(node_id: int, target: int, directory_id: DirectoryId = NO_DIRECTORY) -> bytes:
    return encode_hello(
        Hello(
            cluster_id="tests",
            node_id=NodeId(node_id),
            target_id=NodeId(target),
            incarnation=1,
            directory_id=directory_id,
            target_directory_id=NO_DIRECTORY,
        )
    )


def directory_id(data_dir: Path) -> DirectoryId:
    lines = dict(line.split("=", 1) for line in (data_dir / "meta.properties").read_text().splitlines())
    return DirectoryId(UUID(lines["directory.id"]))


def peer_address(cluster: QuorateCluster, node_id: int) -> tuple[str, int]:
    host, port = str(cluster.nodes[node_id].settings["peer_listen"]).rsplit(":", 1)
    return host, int(port)


def say(
    cluster: QuorateCluster, target: int, introduction: bytes, *messages: Message, knows_secret: bool = True
) -> FrameKind | None:
    """Introduce oneself, say all that, and wait until it has been read; the kind of the first answer."""
    with socket.create_connection(peer_address(cluster, target), timeout=20) as connection:
        if knows_secret:
            claimed = decode_hello(memoryview(introduction))
            assert isinstance(claimed, Hello)
            prove(connection, cluster.secrets, claimed.node_id, target)
        connection.sendall(frames((FrameKind.HELLO, introduction)))
        header = b""
        with contextlib.suppress(OSError):  # It may be refused at any moment.
            header = connection.recv(5)
            connection.sendall(
                frames(*[(FrameKind.MESSAGE, bytes([Channel.RAFT]) + encode_message(message)) for message in messages])
            )
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        return FrameKind(header[4]) if len(header) == 5 else None


def hostile_messages(sender: int, target: int) -> list[Message]:
    said: dict[str, Any] = {"sender": NodeId(sender), "receiver": NodeId(target)}
    return [
        TermNotice(term=INSANE_TERM, **said),
        TimeoutNow(term=INSANE_TERM, **said),
        Heartbeat(term=INSANE_TERM, high_watermark=Offset(2**62), read_round=2**62, **said),
        VoteRequest(
            term=INSANE_TERM,
            is_pre_vote=False,
            is_transfer=True,
            log_end_offset=Offset(2**62),
            last_term=INSANE_TERM,
            **said,
        ),
    ]


def still_works(cluster: QuorateCluster, topic: str) -> bool:
    """All nodes live, none has changed its leader, and changes are agreed on."""
    servers = tuple(node.bootstrap for node in cluster.nodes.values())
    with KafkaClient(ClientConfig(bootstrap_servers=servers)) as client:
        client.topics.create([NewTopic(name=TopicName(topic), partitions=1, replication_factor=3)])
        return {broker.node_id for broker in client.cluster.metadata().brokers.values()} == set(IDS)


def term_of(cluster: QuorateCluster) -> int:
    servers = tuple(node.bootstrap for node in cluster.nodes.values())
    with KafkaClient(ClientConfig(bootstrap_servers=servers)) as client:
        return client.quorum.describe().term


def test_one_frame_does_not_end_the_cluster_for_good(cluster: QuorateCluster) -> None:
    term = term_of(cluster)
    for target in IDS:
        say(cluster, target, hello(STRANGER, target), *hostile_messages(STRANGER, target))
        for member in set(IDS) - {target}:  # Whose data folders a stranger does not know.
            for folder in (NO_DIRECTORY, DirectoryId(UUID(int=1))):
                kind = say(cluster, target, hello(member, target, folder), *hostile_messages(member, target))
                assert kind is FrameKind.REJECT
    assert still_works(cluster, "after-one-frame")
    assert term_of(cluster) == term
    assert all("Traceback" not in node.log_text() for node in cluster.nodes.values())


def test_who_does_not_know_the_secret_is_not_listened_to(cluster: QuorateCluster) -> None:
    term = term_of(cluster)
    folders = {node_id: directory_id(node.data_dir) for node_id, node in cluster.nodes.items()}
    for target in IDS:
        for sender in (STRANGER, *(set(IDS) - {target})):  # Even where it has read the folders of all nodes.
            introduction = hello(sender, target, folders.get(sender, NO_DIRECTORY))
            kind = say(cluster, target, introduction, *hostile_messages(sender, target), knows_secret=False)
            assert kind is FrameKind.REJECT
    assert still_works(cluster, "after-the-unproven")
    assert term_of(cluster) == term
    for node in cluster.nodes.values():
        text = node.log_text()
        assert "reason='unauthenticated'" in text
        assert "node 666" not in text  # Nothing that it has said was read.


def test_the_secret_is_not_in_sight(cluster: QuorateCluster) -> None:
    secret = Path(str(cluster.nodes[IDS[0]].settings["cluster_secret_file"])).read_text().strip()
    for node in cluster.nodes.values():
        assert secret not in node.log_text()
        assert secret.encode() not in Path(f"/proc/{node.pid}/cmdline").read_bytes()
        assert secret.encode() not in Path(f"/proc/{node.pid}/environ").read_bytes()
        for path in node.data_dir.rglob("*"):
            assert not path.is_file() or secret.encode() not in path.read_bytes()


def test_hellos_make_no_node_dial_a_stranger(cluster: QuorateCluster) -> None:
    dialled = 0
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        host, port = listener.getsockname()
        stopped = threading.Event()

        def count() -> None:
            nonlocal dialled
            while not stopped.is_set():
                with contextlib.suppress(TimeoutError):
                    listener.accept()[0].close()
                    dialled += 1

        counting = threading.Thread(target=count)
        counting.start()
        for number in range(300):
            target = IDS[number % 3]
            say(cluster, target, _hello_with_address(1000 + number, target, host, port))
        assert still_works(cluster, "after-300-hellos")
        stopped.set()
        counting.join()
    assert dialled == 0


def _hello_with_address(node_id: int, target: int, host: str, port: int) -> bytes:
    """As one that says where it wants to be dialled: no field of a hello means that; unknown ones are passed over."""
    known = msgspec.msgpack.decode(hello(node_id, target)[2:])
    return hello(node_id, target)[:2] + msgspec.msgpack.encode(known | {"address": {"host": host, "port": port}})


def test_huge_frames_that_are_only_announced_cost_no_memory(cluster: QuorateCluster) -> None:
    node = cluster.nodes[IDS[0]]
    before = node.resident_bytes()
    with contextlib.ExitStack() as open_connections:
        for number in range(100):
            connection = socket.create_connection(peer_address(cluster, IDS[0]), timeout=20)
            open_connections.enter_context(connection)
            with contextlib.suppress(ConnectionError):
                prove(connection, cluster.secrets, 2000 + number, IDS[0])
                connection.sendall(frames((FrameKind.HELLO, hello(2000 + number, IDS[0]))))
                connection.recv(4096)
                connection.sendall(struct.pack(">I", 64 * 1024 * 1024) + b"\x04")
        assert still_works(cluster, "after-huge-frames")
        assert node.resident_bytes() - before < 64 * 1024 * 1024
