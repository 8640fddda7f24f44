"""What clients can make a node hold of requests that have not come whole: little, and not for ever."""

import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from quorate.protocol.frames import encode_request
from quorate.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.eventually import eventually
from tests.integration.side_client import SideClient
from tests.integration.wire_client import WireClient
from tests.peers.quorate_node import QuorateNode

MOST_MEMORY_BYTES = 64 * 1024 * 1024
ANNOUNCED_BYTES = 100_000_000
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture
def hasty_node(tmp_path: Path) -> Iterator[QuorateNode]:
    """One that gives requests little time and little memory."""
    configs = {
        "socket.request.timeout.ms": 3000,
        "queued.max.request.bytes": 4 * 1024 * 1024,
    }
    with QuorateNode.start(tmp_path / "node", configs=configs) as running:
        yield running


def connect(node: QuorateNode) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", node.port), DEADLINE_S)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
    return connection


def padded_request(size_bytes: int) -> bytes:
    """An ApiVersions request of version 0 and bytes behind it that nobody looks at."""
    request = b"".join(map(bytes, encode_request(1, "padded", ApiVersionsRequest(), 0)))[4:]
    return struct.pack(">i", size_bytes) + request + bytes(size_bytes - len(request))


def is_answered(connection: socket.socket) -> bool:
    return len(connection.recv(4)) == 4


def has_ended(connection: socket.socket) -> bool:
    if not select.select([connection], [], [], 0)[0]:
        return False
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def send_what_is_taken(connection: socket.socket, data: bytes) -> None:
    """As much as the node reads and the kernel keeps for it."""
    connection.settimeout(0.2)
    with suppress(TimeoutError, ConnectionError):
        connection.sendall(data)
    connection.settimeout(DEADLINE_S)


def side_is_answered(side: SideClient) -> None:
    answered = side.answers
    eventually(lambda: side.answers > answered + 50, "answers to others")


def test_thirty_connections_that_announce_100_mb_and_send_one_byte(node: QuorateNode) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(node)) for _ in range(30)]
        side = stack.enter_context(SideClient(node.bootstrap, node.pid))
        for piece in (struct.pack(">i", ANNOUNCED_BYTES), b"\0", b"\0"):
            for connection in connections:
                connection.sendall(piece)
            side_is_answered(side)

    assert not side.was_kept_waiting
    assert side.grown_bytes < MOST_MEMORY_BYTES / 4


def test_a_thousand_connections_that_send_a_part_of_what_they_announce(node: QuorateNode) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(node)) for _ in range(1000)]
        side = stack.enter_context(SideClient(node.bootstrap, node.pid))
        for connection in connections:
            connection.setblocking(False)
            for piece in (struct.pack(">i", ANNOUNCED_BYTES), bytes(400_000)):
                with suppress(BlockingIOError):
                    connection.send(piece)
        side_is_answered(side)

    assert side.grown_bytes < MOST_MEMORY_BYTES


def test_a_request_larger_than_all_memory_for_requests_is_answered(hasty_node: QuorateNode) -> None:
    with connect(hasty_node) as connection:
        connection.sendall(padded_request(7 * 1024 * 1024))
        assert is_answered(connection)


def test_those_that_hold_the_memory_and_stall_end_and_others_get_on(hasty_node: QuorateNode) -> None:
    with ExitStack() as stack:
        stalling = [stack.enter_context(connect(hasty_node)) for _ in range(10)]
        for connection in stalling:
            send_what_is_taken(connection, struct.pack(">i", ANNOUNCED_BYTES) + bytes(2 * 1024 * 1024))
        with connect(hasty_node) as connection, WireClient(hasty_node.bootstrap) as small:
            connection.sendall(padded_request(1024 * 1024)[:-1])
            small.call(ApiVersionsRequest(), 0, ApiVersionsResponse)
            connection.sendall(b"\0")
            assert is_answered(connection)


@pytest.mark.parametrize("sent", [b"\0", struct.pack(">i", 1000), struct.pack(">i", 1000) + bytes(999)])
def test_a_request_that_never_comes_whole_ends_its_connection(hasty_node: QuorateNode, sent: bytes) -> None:
    with connect(hasty_node) as connection:
        connection.sendall(sent)
        assert connection.recv(1) == b""


def test_slowloris_a_request_that_comes_a_byte_at_a_time_ends_its_connection(hasty_node: QuorateNode) -> None:
    begun = time.monotonic()
    with connect(hasty_node) as connection:
        connection.sendall(struct.pack(">i", 100_000))
        while not has_ended(connection):
            assert time.monotonic() - begun < DEADLINE_S
            try:
                connection.sendall(b"\0")
            except ConnectionError:
                break
            time.sleep(0.05)


def test_a_connection_that_never_sends_a_request_is_closed(tmp_path: Path) -> None:
    with (
        QuorateNode.start(tmp_path / "node", configs={"connections.max.idle.ms": 1000}) as node,
        connect(node) as connection,
    ):
        assert connection.recv(1) == b""
