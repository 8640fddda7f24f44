"""Clients that ask and do not read: what their answers hold of a node's memory, and how long they are waited for."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

from quorate.protocol.frames import encode_request
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from quorate.transport.connection import FrameHandler, ServerConnection
from quorate.transport.server import ListenerConfig, Server
from tests.eventually import eventually
from tests.integration.side_client import SideClient
from tests.integration.wire_client import WireClient
from tests.peers.quorate_node import QuorateNode

MOST_MEMORY_BYTES = 64 * 1024 * 1024
PARTITIONS = 10_000
ANSWER_BYTES = 4 * 1024 * 1024


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


class WatchedServer(Server):
    """A server that answers every frame with some megabytes, and notes why connections ended."""

    def __init__(self, config: ListenerConfig) -> None:
        def handler(_: ServerConnection) -> FrameHandler:
            return lambda _: [bytes(ANSWER_BYTES)]

        super().__init__(asyncio.get_running_loop(), config, handler)
        self.reasons: list[str | None] = []

    def connection_closed(self, connection: ServerConnection, reason: str | None) -> None:
        self.reasons.append(reason)
        super().connection_closed(connection, reason)


def serve(
    scenario: Callable[[WatchedServer], None], *, idle_timeout_ms: int = 60_000, unread_bytes: int = 1 << 30
) -> None:
    """The scenario runs in a thread of its own."""

    async def run() -> None:
        config = ListenerConfig(host="127.0.0.1", port=0, idle_timeout_ms=idle_timeout_ms, unread_bytes=unread_bytes)
        server = WatchedServer(config)
        await server.start()
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


def test_those_who_do_not_read_end_where_their_answers_hold_too_much_memory() -> None:
    def scenario(server: WatchedServer) -> None:
        deaf = [connect(server.port) for _ in range(10)]
        for client in deaf:
            ask(client)
        with connect(server.port) as reader:
            for _ in range(20):
                ask(reader)
                assert not is_cut_off(reader)
        eventually(lambda: len(server.reasons) >= 7, "the end of most of those who do not read")
        ended = [reason for reason in server.reasons if reason == "no memory for answers that are not read"]
        assert 7 <= len(ended) < 10  # What the others hold is within the limit.
        for client in deaf:
            client.close()

    serve(scenario, unread_bytes=3 * ANSWER_BYTES)


def test_an_answer_that_is_never_read_ends_its_connection_as_an_idle_one_ends() -> None:
    def scenario(server: WatchedServer) -> None:
        with connect(server.port) as client:
            ask(client)
            eventually(lambda: server.reasons == ["its answers were not read"], "the end of the connection")

    serve(scenario, idle_timeout_ms=1500)


def test_an_answer_that_is_read_is_read_to_its_end() -> None:
    def scenario(server: WatchedServer) -> None:
        with connect(server.port) as client:
            ask(client)
            assert not is_cut_off(client)

    serve(scenario, unread_bytes=1)
