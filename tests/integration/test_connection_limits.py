"""Kafka's limits on connections, changed while a node runs, and the operators whom no limit locks out."""

import asyncio
import errno
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from quorate.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from quorate.transport.acceptor import Door
from quorate.transport.connection import FrameHandler, ServerConnection
from quorate.transport.server import ListenerConfig, Server
from tests.eventually import eventually
from tests.integration.wire_client import WireClient
from tests.peers.quorate_node import QUORATE, QuorateNode

#: Loopback addresses that are not the node's own, so that it takes their clients for remote ones.
REMOTE, OTHER_REMOTE = "127.0.0.2", "127.0.0.3"
VERSIONS = b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff"
BROKER = 4
#: Longer than it takes to let in somebody who may come in.
MOMENT_S = 0.5


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node")) as running:
        yield running


def set_limits(node: QuorateNode, **limits: str) -> int:
    """Change the limits by any way in; what is not named goes back to its default. Returns the error code."""
    names = ["max.connections", "max.connections.per.ip", "max.connections.per.ip.overrides"]
    names.append("max.connection.creation.rate")
    given = {name.replace("_", "."): value for name, value in limits.items()}
    configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in given.items()]
    configs += [AlterableConfig(name=name, config_operation=1) for name in names if name not in given]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=BROKER, resource_name=str(node.node_id), configs=configs)]
    )
    with WireClient(node.bootstrap) as client:
        return client.call(request, 1, IncrementalAlterConfigsResponse).responses[0].error_code


@pytest.fixture(autouse=True)
def no_limits_are_left(node: QuorateNode) -> Iterator[None]:
    yield
    assert set_limits(node) == 0


def knock(node: QuorateNode, address: str = REMOTE) -> socket.socket:
    """Connect from the address and ask something."""
    client = socket.create_connection(("127.0.0.1", node.port), 30, source_address=(address, 0))
    client.sendall(VERSIONS)
    return client


def is_let_in(client: socket.socket) -> bool:
    try:
        return client.recv(1) != b""
    except ConnectionError:
        return False


def is_kept_waiting(client: socket.socket) -> bool:
    client.settimeout(MOMENT_S)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(30)
    return False


def test_max_connections_keeps_those_beyond_it_waiting_until_others_end(node: QuorateNode) -> None:
    with knock(node) as first, knock(node) as second:
        assert is_let_in(first)
        assert is_let_in(second)
        assert set_limits(node, max_connections="2") == 0
        with knock(node, OTHER_REMOTE) as third:
            assert is_kept_waiting(third)
            first.close()
            assert is_let_in(third)


def test_who_waits_is_let_in_when_the_limit_is_raised(node: QuorateNode) -> None:
    assert set_limits(node, max_connections="0") == 0
    with knock(node) as client:
        assert is_kept_waiting(client)
        assert set_limits(node, max_connections="10") == 0
        assert is_let_in(client)


def test_max_connections_per_ip_closes_those_beyond_it_and_no_others(node: QuorateNode) -> None:
    assert set_limits(node, max_connections_per_ip="2", max_connections_per_ip_overrides=f"{OTHER_REMOTE}:1") == 0
    with knock(node) as first, knock(node) as second, knock(node) as third, knock(node, OTHER_REMOTE) as other:
        assert [is_let_in(client) for client in (first, second, third, other)] == [True, True, False, True]
        with knock(node, OTHER_REMOTE) as another:
            assert not is_let_in(another)
    assert "connection refused reason='max.connections.per.ip" in node.log_text()


def test_max_connection_creation_rate_delays_and_closes_nobody(node: QuorateNode) -> None:
    assert set_limits(node, max_connection_creation_rate="20") == 0
    clients = [knock(node) for _ in range(60)]
    assert all(map(is_let_in, clients))
    for client in clients:
        client.close()


def test_no_limit_locks_an_operator_out(node: QuorateNode) -> None:
    limits = {"max_connections": "0", "max_connections_per_ip": "0", "max_connection_creation_rate": "0"}
    assert set_limits(node, **limits) == 0
    with knock(node) as client:
        assert not is_let_in(client)
    idle = [knock(node, "127.0.0.1") for _ in range(50)]  # Whoever else is on the machine.
    status = [str(QUORATE), "cluster", "status", "--bootstrap-server", node.bootstrap]
    done = subprocess.run(status, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set_limits(node) == 0
    with knock(node) as client:
        assert is_let_in(client)
    for client in idle:
        client.close()


def set_rate(node: QuorateNode, address: str | None, rate: float | None) -> None:
    entity = [RequestEntityData(entity_type="ip", entity_name=address)]
    op = OpData(key="connection_creation_rate", value=rate or 0.0, remove=rate is None)
    request = AlterClientQuotasRequest(entries=[RequestEntryData(entity=entity, ops=[op])])
    with WireClient(node.bootstrap) as client:
        assert client.call(request, 1, AlterClientQuotasResponse).entries[0].error_code == 0


def test_the_rate_of_an_address_locks_no_operator_out(node: QuorateNode) -> None:
    set_rate(node, "127.0.0.1", 1.0)
    clients = [knock(node, "127.0.0.1") for _ in range(50)]
    assert sum(is_let_in(each) for each in clients) > 10  # All have come in by then, or been turned away.
    with WireClient(node.bootstrap) as client:
        assert client.call(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == 0
    set_rate(node, "127.0.0.1", None)
    for each in clients:
        each.close()


def test_who_waits_for_the_rate_of_its_address_keeps_nobody_else_waiting(node: QuorateNode) -> None:
    set_rate(node, REMOTE, 1.0)
    flood = [knock(node, REMOTE) for _ in range(80)]
    with knock(node, OTHER_REMOTE) as other:
        assert is_let_in(other)
    let_in = sum(is_let_in(each) for each in flood)
    assert 10 <= let_in < 80
    set_rate(node, REMOTE, None)
    for each in flood:
        each.close()


def test_a_stop_does_not_wait_for_connections_that_are_held_back(tmp_path: Path) -> None:
    with QuorateNode.start(tmp_path) as node:
        set_rate(node, REMOTE, 1.0)
        clients = [knock(node, REMOTE) for _ in range(25)]
        assert node.stop() == 0
        for client in clients:
            client.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_connections", "-1"),
        ("max_connections", "many"),
        ("max_connections_per_ip_overrides", "10.0.0.7"),
        ("max_connections_per_ip_overrides", "nowhere:1"),
        ("max_connection_creation_rate", "1.5"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(node: QuorateNode, name: str, value: str) -> None:
    assert set_limits(node, **{name: value}) != 0


class FullListener(socket.socket):
    """A listener of a process that has no descriptor left, for a while."""

    refusals = 3
    accepts = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.accepts += 1
        if self.accepts <= self.refusals:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_a_listener_without_descriptors_neither_spins_nor_dies() -> None:
    def handler(_: ServerConnection) -> FrameHandler:
        return lambda frame: [bytes(frame)]

    async def scenario() -> int:
        listener = FullListener()
        listener.bind(("127.0.0.1", 0))
        server = Server(asyncio.get_running_loop(), ListenerConfig(host="", port=0), handler)
        await server.start([Door(sockets=[listener], open_connection=handler)])
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"\0\0\0\1a")
        assert await reader.readexactly(1) == b"a"
        writer.close()
        await server.stop(0)
        return listener.accepts

    assert asyncio.run(scenario()) <= FullListener.refusals + 2


def test_a_node_that_runs_out_of_descriptors_takes_connections_again_when_some_are_free(tmp_path: Path) -> None:
    few = "import os, resource, sys; resource.setrlimit(7, (200, 200)); os.execv(sys.argv[1], sys.argv[1:])"
    assert resource.RLIMIT_NOFILE == 7
    node = QuorateNode(tmp_path / "node", node_id=7, settings={}, configs={}, command_start=(sys.executable, "-c", few))
    node.restart()
    with node:
        clients = [socket.create_connection(("127.0.0.1", node.port), 30) for _ in range(400)]
        eventually(lambda: "connection refused reason='no descriptor is left for it'" in node.log_text(), "the line")
        for client in clients:
            client.close()

        def answers() -> bool:
            with WireClient(node.bootstrap) as client:
                return client.call(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == 0

        assert answers()
        assert node.log_text().count("connection refused") < 10
