"""A network of its own for each node, so that the cable of one can be pulled: namespaces joined by a bridge.

Needs root and ``ip``. A node that is taken off the bridge hears nothing and is told nothing: no reset, no refusal, as
with a switch that has failed.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Self


class NetworkUnavailable(Exception):
    """Namespaces cannot be made here; the message says why."""


class Network:
    """Addresses ``10.213.x.y``: the bridge has y = 1, the nodes the next ones. Gone when the block is left."""

    def __init__(self, node_ids: Sequence[int]) -> None:
        tag = f"qb{os.getpid() % 100_000}"
        self._bridge = tag
        self._prefix = f"10.213.{os.getpid() % 250}"
        self._namespaces = {node_id: f"{tag}-{number}" for number, node_id in enumerate(node_ids)}
        self._cables = {node_id: f"{tag}v{number}" for number, node_id in enumerate(node_ids)}
        self.hosts = {node_id: f"{self._prefix}.{number + 2}" for number, node_id in enumerate(node_ids)}

    def __enter__(self) -> Self:
        if shutil.which("ip") is None:
            raise NetworkUnavailable("the program ip is not installed")
        try:
            self._make()
        except NetworkUnavailable:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def command(self, node_id: int) -> list[str]:
        """What a node's command begins with, so that it runs on its own network."""
        return ["ip", "netns", "exec", self._namespaces[node_id]]

    def cut(self, node_id: int) -> None:
        _ip("link", "set", self._cables[node_id], "nomaster")

    def mend(self, node_id: int) -> None:
        _ip("link", "set", self._cables[node_id], "master", self._bridge)

    def _make(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self._prefix}.1/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for node_id, namespace in self._namespaces.items():
            cable, inner = self._cables[node_id], f"{self._cables[node_id]}i"
            _ip("netns", "add", namespace)
            _ip("link", "add", cable, "type", "veth", "peer", "name", inner, "netns", namespace)
            _ip("link", "set", cable, "master", self._bridge, "up")
            _ip("-n", namespace, "addr", "add", f"{self.hosts[node_id]}/24", "dev", inner)
            _ip("-n", namespace, "link", "set", inner, "up")
            _ip("-n", namespace, "link", "set", "lo", "up")

    def _remove(self) -> None:
        """With a namespace goes its end of the cable, and with that the other end."""
        for namespace in self._namespaces.values():
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    outcome = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if outcome.returncode:
        raise NetworkUnavailable(f"ip {' '.join(arguments)}: {outcome.stderr.strip()}")
