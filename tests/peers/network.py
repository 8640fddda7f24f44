"""A network of its own for each node, so that the cable of one can be pulled: namespaces joined by a bridge.

Needs root and ``ip``. A node that is taken off the bridge hears nothing and is told nothing: no reset, no refusal, as
with a switch that has failed. One way alone is cut by sending what goes there to a card that nobody has.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self

_NOBODYS_CARD = "02:00:00:00:00:01"


class NetworkUnavailable(Exception):
    """Namespaces cannot be made here; the message says why."""


class Network:
    """Addresses ``10.213.x.y``: the bridge has y = 1, the nodes the next ones. Gone when the block is left."""

    def __init__(self, node_ids: Iterable[int]) -> None:
        self._first_nodes = tuple(node_ids)
        self._bridge = f"qb{os.getpid() % 100_000}"
        self._prefix = f"10.213.{os.getpid() % 250}"
        self._namespaces: dict[int, str] = {}
        self._cables: dict[int, str] = {}
        self.hosts: dict[int, str] = {}

    def __enter__(self) -> Self:
        if shutil.which("ip") is None:
            raise NetworkUnavailable("the program ip is not installed")
        try:
            self._make_bridge()
            for node_id in self._first_nodes:
                self.add(node_id)
        except NetworkUnavailable:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def add(self, node_id: int) -> None:
        number = len(self._namespaces)
        namespace, cable = f"{self._bridge}-{number}", f"{self._bridge}v{number}"
        self._namespaces[node_id], self._cables[node_id] = namespace, cable
        self.hosts[node_id] = f"{self._prefix}.{number + 2}"
        _ip("netns", "add", namespace)
        _ip("link", "add", cable, "type", "veth", "peer", "name", _inner(cable), "netns", namespace)
        _ip("link", "set", cable, "master", self._bridge, "up")
        _ip("-n", namespace, "addr", "add", f"{self.hosts[node_id]}/24", "dev", _inner(cable))
        _ip("-n", namespace, "link", "set", _inner(cable), "up")
        _ip("-n", namespace, "link", "set", "lo", "up")

    def command(self, node_id: int) -> list[str]:
        """What a node's command begins with, so that it runs on its own network."""
        return ["ip", "netns", "exec", self._namespaces[node_id]]

    def cut(self, node_id: int) -> None:
        """Nodes and clients do not hear the node, and it does not hear them."""
        _ip("link", "set", self._cables[node_id], "nomaster")

    def deafen(self, node_id: int) -> None:
        """The node does not hear the others, and is heard."""
        for other, way in self._ways_to(node_id):
            _ip(*other, "neigh", "replace", *way, "lladdr", _NOBODYS_CARD, "nud", "permanent")

    def silence(self, node_id: int) -> None:
        """The others do not hear the node, and are heard."""
        for own, way in self._ways_from(node_id):
            _ip(*own, "neigh", "replace", *way, "lladdr", _NOBODYS_CARD, "nud", "permanent")

    def mend(self, node_id: int) -> None:
        _ip("link", "set", self._cables[node_id], "master", self._bridge)
        for namespace, way in (*self._ways_to(node_id), *self._ways_from(node_id)):
            _try_ip(*namespace, "neigh", "del", *way)  # There need not be an entry.

    def _ways_to(self, node_id: int) -> Iterator[tuple[list[str], list[str]]]:
        """For each that may send to the node: in which namespace, and to which address through which card."""
        host = self.hosts[node_id]
        yield [], [host, "dev", self._bridge]
        for other, namespace in self._namespaces.items():
            if other != node_id:
                yield ["-n", namespace], [host, "dev", _inner(self._cables[other])]

    def _ways_from(self, node_id: int) -> Iterator[tuple[list[str], list[str]]]:
        namespace, card = self._namespaces[node_id], _inner(self._cables[node_id])
        others = [host for other, host in self.hosts.items() if other != node_id]
        for host in (f"{self._prefix}.1", *others):
            yield ["-n", namespace], [host, "dev", card]

    def _make_bridge(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self._prefix}.1/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")

    def _remove(self) -> None:
        """Cables first: with their namespace they would go some time later."""
        for node_id, namespace in self._namespaces.items():
            _try_ip("link", "del", self._cables[node_id])
            _try_ip("netns", "del", namespace)
        _try_ip("link", "del", self._bridge)


def _inner(cable: str) -> str:
    return f"{cable}i"


def _ip(*arguments: str) -> None:
    outcome = _try_ip(*arguments)
    if outcome.returncode:
        raise NetworkUnavailable(f"ip {' '.join(arguments)}: {outcome.stderr.strip()}")


def _try_ip(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
