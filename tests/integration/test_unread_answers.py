"""Clients that ask and do not read: what their answers hold of a node's memory, and how long they are waited for."""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quorate.kernel.ports import FileRegion
from quorate.protocol.frames import encode_request
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from quorate.storage.os_disk import OsDisk
from quorate.transport.acceptor import Door
from quorate.transport.connection import FrameHandler, ServerConnection
from quorate.transport.outbox import Reply
from quorate.transport.server import ListenerConfig, Server
from tests.eventually import eventually
from tests.integration.side_client import SideClient
from tests.integration.wire_client import WireClient
from tests.peers.quorate_node import QuorateNode
from tests.peers.secured_node import Authority

MOST_MEMORY_BYTES = 64 * 1024 * 1024
PARTITIONS = 10_000
ANSWER_BYTES = 4 * 1024 * 1024
FILE_BYTES = 64 * 1024 * 1024
#: Three of those in which a file is encrypted, and what TLS adds to them.
MOST_PIECES_BYTES = 800 * 1024


def test_pipelined_metadata_of_many_partitions_that_is_not_read_holds_little_memory(tmp_path: Path) -> None:
    with QuorateNode.start(tmp_path / "node") as node:
        with WireClient(node.bootstrap) as client:
            for number in range(10):
                topic = CreatableTopic(name=f"big-{number}", num_partitions=PARTITIONS // 10, replication_factor=1)
                client.call(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7, CreateTopicsResponse)

            def knows_all() -> bool:
                answer = client.call(MetadataRequest(topics=None), 12, MetadataResponse)
                return sum(len(topic.partitions) for topic in answer.topics) == PARTITIONS

            eventually(knows_all, "all partitions")
        request = b"".join(map(bytes, encode_request(1, "unread", MetadataRequest(topics=None), 12)))
        with SideClient(node.bootstrap, node.pid) as side:
            clients = [connect(node.port) for _ in range(30)]
            for deaf in clients:
                deaf.sendall(100 * request)
            answered = side.answers
            eventually(lambda: side.answers > answered + 500, "answers to others")
            for deaf in clients:
                deaf.close()
        assert side.grown_bytes < MOST_MEMORY_BYTES


def connect(port: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    return client


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


class Tls:
    """Of both ends; for plain connections there is none."""

    def __init__(self, authority: Authority) -> None:
        self.of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.of_server.load_cert_chain(authority.issue("node", "127.0.0.1"))
        self._of_client = ssl.create_default_context(cafile=authority.certificate)

    def connect(self, port: int) -> socket.socket:
        return self._of_client.wrap_socket(connect(port), server_hostname="127.0.0.1")


@pytest.fixture(params=["plain", "TLS"])
def tls(request: pytest.FixtureRequest, authority: Authority) -> Tls | None:
    return Tls(authority) if request.param == "TLS" else None


class WatchedServer(Server):
    """A server that answers every frame with some megabytes, and notes why connections ended."""

    def __init__(self, config: ListenerConfig, tls: Tls | None, answer: Callable[[], Reply]) -> None:
        self._tls = tls
        self._answer = answer
        self.opened: list[ServerConnection] = []
        self.reasons: list[str | None] = []
        super().__init__(asyncio.get_running_loop(), config, self._open)

    def _open(self, connection: ServerConnection) -> FrameHandler:
        self.opened.append(connection)
        return lambda _: self._answer()

    async def listen(self) -> None:
        if self._tls is None:
            await self.start()
            return
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        context = self._tls.of_server
        await self.start([Door(sockets=[listening], open_connection=self._open, tls=lambda: context)])

    def connect(self) -> socket.socket:
        return connect(self.port) if self._tls is None else self._tls.connect(self.port)

    def connection_closed(self, connection: ServerConnection, reason: str | None) -> None:
        self.reasons.append(reason)
        super().connection_closed(connection, reason)


def serve(
    scenario: Callable[[WatchedServer], None],
    tls: Tls | None,
    *,
    idle_timeout_ms: int = 60_000,
    unread_bytes: int = 1 << 30,
    answer: Callable[[], Reply] = lambda: [bytes(ANSWER_BYTES)],
) -> None:
    """The scenario runs in a thread of its own."""

    async def run() -> None:
        config = ListenerConfig(host="127.0.0.1", port=0, idle_timeout_ms=idle_timeout_ms, unread_bytes=unread_bytes)
        server = WatchedServer(config, tls, answer)
        await server.listen()
        try:
            await asyncio.to_thread(scenario, server)
        finally:
            await server.stop(0)

    asyncio.run(run())


def ask(client: socket.socket) -> None:
    client.sendall(b"\0\0\0\1a")


def is_cut_off(client: socket.socket) -> bool:
    """Reads what there is; whether the answer ended before it was whole."""
    client.settimeout(30)
    received = 0
    try:
        while received < ANSWER_BYTES:
            piece = client.recv(1 << 20)
            if not piece:
                return True
            received += len(piece)
    except ConnectionError:
        return True
    return False


def test_those_who_do_not_read_end_where_their_answers_hold_too_much_memory(tls: Tls | None) -> None:
    def scenario(server: WatchedServer) -> None:
        deaf = [server.connect() for _ in range(10)]
        for client in deaf:
            ask(client)
        with server.connect() as reader:
            for _ in range(20):
                ask(reader)
                assert not is_cut_off(reader)
        eventually(lambda: len(server.reasons) >= 7, "the end of most of those who do not read")
        ended = [reason for reason in server.reasons if reason == "no memory for answers that are not read"]
        assert 7 <= len(ended) < 10  # What the others hold is within the limit.
        for client in deaf:
            client.close()

    serve(scenario, tls, unread_bytes=3 * ANSWER_BYTES)


def test_an_answer_that_is_never_read_ends_its_connection_as_an_idle_one_ends(tls: Tls | None) -> None:
    def scenario(server: WatchedServer) -> None:
        with server.connect() as client:
            ask(client)
            eventually(lambda: server.reasons == ["its answers were not read"], "the end of the connection")

    serve(scenario, tls, idle_timeout_ms=1500)


def test_an_answer_that_is_read_is_read_to_its_end(tls: Tls | None) -> None:
    def scenario(server: WatchedServer) -> None:
        with server.connect() as client:
            ask(client)
            assert not is_cut_off(client)

    serve(scenario, tls, unread_bytes=1)


@pytest.fixture
def large_file(tmp_path: Path) -> Iterator[Callable[[], Reply]]:
    """Of 64 MiB, which takes none of the disk."""
    (tmp_path / "file").touch()
    os.truncate(tmp_path / "file", FILE_BYTES)
    file = OsDisk().open(str(tmp_path / "file"))
    yield lambda: [FileRegion(file, 0, FILE_BYTES)]
    file.close()


def test_files_that_are_not_read_lie_in_memory_by_a_piece_each(
    tls: Tls | None, large_file: Callable[[], Reply]
) -> None:
    def scenario(server: WatchedServer) -> None:
        deaf = [server.connect() for _ in range(20)]
        for client in deaf:
            ask(client)
        with server.connect() as reader:
            reader.settimeout(30)
            ask(reader)
            received = 0
            while received < FILE_BYTES:
                received += len(reader.recv(1 << 20))
                assert max(connection.unread_bytes() for connection in list(server.opened)) <= MOST_PIECES_BYTES
        eventually(lambda: all(connection.is_blocked for connection in server.opened[:20]), "answers that wait")
        assert server.reasons in ([], [None])  # The reader has left.
        for client in deaf:
            client.close()

    serve(scenario, tls, unread_bytes=20 * MOST_PIECES_BYTES, answer=large_file)
