"""Networks that are cut, one way and both, as those see it who send over them."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.eventually import eventually
from tests.peers.network import Network, NetworkUnavailable

_PORT = 20_000
#: Sends back to its sender what it gets, and says on its output that it got it.
_ECHO = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
    own.bind((sys.argv[1], int(sys.argv[2])))
    while True:
        content, sender = own.recvfrom(100)
        print(content.decode(), flush=True)
        own.sendto(content, sender)
"""


class Echo:
    def __init__(self, network: Network, node_id: int) -> None:
        self.host = network.hosts[node_id]
        self.process = subprocess.Popen(
            [*network.command(node_id), sys.executable, "-c", _ECHO, self.host, str(_PORT)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self._output = self.process.stdout
        self._own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._own.settimeout(0.3)
        self.sent = 0

    def answers(self) -> bool:
        self.sent += 1
        self._own.sendto(str(self.sent).encode(), (self.host, _PORT))
        try:
            return self._own.recv(100).decode() == str(self.sent)
        except TimeoutError:
            return False

    def close(self) -> list[str]:
        """Everything that reached it."""
        self.process.kill()
        self._own.close()
        return self._output.read().split()


@pytest.fixture
def network() -> Iterator[Network]:
    try:
        with Network([7, 100]) as network:
            yield network
    except NetworkUnavailable as error:
        pytest.skip(f"no networks of their own: {error}")


@pytest.fixture
def echo(network: Network) -> Iterator[Echo]:
    echo = Echo(network, 7)
    eventually(echo.answers, "the other end to listen")
    yield echo
    echo.close()


def test_a_cable_is_pulled_and_put_back(network: Network, echo: Echo) -> None:
    network.cut(7)
    assert not echo.answers()
    network.mend(7)
    eventually(echo.answers, "the network to be mended")


@pytest.mark.parametrize(("way", "hears"), [(Network.silence, True), (Network.deafen, False)])
def test_one_way_alone_is_cut(network: Network, echo: Echo, way: Callable[[Network, int], None], hears: bool) -> None:
    way(network, 7)
    assert not echo.answers()
    unanswered = echo.sent
    network.mend(7)
    eventually(echo.answers, "the network to be mended")
    assert (str(unanswered) in echo.close()) is hears


def test_another_node_is_not_touched_and_one_may_be_added(network: Network, echo: Echo) -> None:
    network.add(5000)
    others = [Echo(network, node_id) for node_id in (100, 5000)]
    for other in others:
        eventually(other.answers, "the other end to listen")
    for harm in (network.cut, network.deafen, network.silence):
        harm(7)
        assert not echo.answers()
        assert all(other.answers() for other in others)
        network.mend(7)
        eventually(echo.answers, "the network to be mended")
    for other in others:
        other.close()
