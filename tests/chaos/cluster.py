"""Nodes as real processes, for tests that kill, stop, freeze and cut them off.

Start and restart them from the main thread.
"""

import enum
import itertools
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from tests.chaos.credentials import Credentials
from tests.chaos.links import Link, Links
from tests.chaos.small_disk import SmallDisk
from tests.peers.child_process import free_port
from tests.peers.network import Network, NetworkUnavailable
from tests.peers.quorate_node import QUORATE, QuorateNode, TomlValue, ready_line

NODE_IDS = (7, 100, 4001)
FIVE_NODE_IDS = (2, 7, 100, 900, 4001)
_FIRST_ADDED_ID = 5_000
#: Through links that are cut again and again, on a machine that has other work.
_READY_WITHIN_S = 120
_CONFIGS: dict[str, TomlValue] = {
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "replica.lag.time.max.ms": 3_000,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
}


class Wires(enum.StrEnum):
    """What is between the nodes, and how it can be bad."""

    #: Nothing but the loopback: always good.
    LOOPBACK = "loopback"
    #: Proxies before the nodes: slow, lossy, cut and reset.
    PROXIES = "proxies"
    #: A network for each node: cut, for clients as well. Needs root; proxies stand in for it elsewhere.
    NAMESPACES = "namespaces"


class ProcessCluster:
    """Every node is in a rack of its own, and a voter unless it was added later."""

    def __init__(
        self,
        folder: Path,
        durability: str = "fsync",
        *,
        node_ids: Sequence[int] = NODE_IDS,
        configs: Mapping[str, TomlValue] | None = None,
        wires: Wires = Wires.LOOPBACK,
        has_small_disk: bool = False,
        has_certificates: bool = False,
    ) -> None:
        self._folder = folder
        self._durability = durability
        self._configs = {**_CONFIGS, **(configs or {})}
        folder.mkdir(parents=True, exist_ok=True)
        #: What nodes show to each other.
        self.credentials = Credentials(folder, has_certificates=has_certificates)
        self._voter_ids = tuple(node_ids)
        self._peer_ports = {node_id: free_port() for node_id in node_ids}
        #: Where each node has one of its own.
        self.network = _network(node_ids) if wires is Wires.NAMESPACES else None
        has_links = wires is not Wires.LOOPBACK and self.network is None
        self._all_links = Links(Random(1)) if has_links else None
        #: In front of each voter, where there are any.
        self.links: dict[int, Link] = {}
        if self._all_links is not None:
            self.links = {node_id: self._all_links.open(port) for node_id, port in self._peer_ports.items()}
        #: Of the last voter, where that is possible.
        self.small_disk: SmallDisk | None = None
        if has_small_disk:
            self.small_disk = _small_disk(folder / f"node-{node_ids[-1]}" / "data")
        self._nodes = {node_id: self._make(node_id) for node_id in node_ids}
        self._added = itertools.count(_FIRST_ADDED_ID)

    def __enter__(self) -> Self:
        self.start(*self.node_ids)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node_id, node in self._nodes.items():
            node.kill()  # A frozen one too.
            if error is not None:
                print(f"node {node_id}:\n{node.process.output()[-2000:]}", file=sys.stderr)
        if self.small_disk is not None:
            self.small_disk.unmount()
        if self._all_links is not None:
            self._all_links.close()
        if self.network is not None:
            self.network.__exit__(kind, error, trace)

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(self._nodes)

    @property
    def small_disk_owner(self) -> int:
        return self._voter_ids[-1]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self._nodes.values())

    def address_of(self, node_id: int) -> str:
        return self._nodes[node_id].bootstrap

    def log_text(self, node_id: int) -> str:
        return self._nodes[node_id].log_text()

    def is_running(self, node_id: int) -> bool:
        return self._nodes[node_id].process.running

    def start(self, *node_ids: int) -> None:
        """Start nodes that are down, together, and wait until all of them are ready."""
        for node_id in node_ids:
            self._nodes[node_id].launch()
        for node_id in node_ids:
            self._nodes[node_id].process.wait_for_output(ready_line, f"node {node_id} to be ready", _READY_WITHIN_S)

    def restart(self, *node_ids: int) -> None:
        self.start(*node_ids)

    def kill(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self._nodes[node_id].kill()

    def stop(self, node_id: int) -> int:
        """In good order; returns the exit status."""
        return self._nodes[node_id].stop()

    def freeze(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self._nodes[node_id].process.send_signal(signal.SIGSTOP)

    def thaw(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self._nodes[node_id].process.send_signal(signal.SIGCONT)

    def break_links(self) -> None:
        if self._all_links is not None:
            self._all_links.break_all()

    def add_node(self) -> int:
        """One more, which joins by itself and has no vote."""
        node_id = next(self._added)
        self._peer_ports[node_id] = free_port()
        if self.network is not None:
            self.network.add(node_id)
        self._nodes[node_id] = self._make(node_id)
        self.start(node_id)
        return node_id

    def remove_node(self, node_id: int, within_s: float = 90) -> str | None:
        """As an operator does; returns what the command said if it failed."""
        others = ",".join(node.bootstrap for each, node in self._nodes.items() if each != node_id)
        command = [
            str(QUORATE),
            "cluster",
            "remove-node",
            "--bootstrap-server",
            others,
            "--node-id",
            str(node_id),
            "--yes",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=False)
        if done.returncode != 0:
            return done.stderr[-500:]
        self._nodes.pop(node_id).kill()
        return None

    def _make(self, node_id: int) -> QuorateNode:
        addresses = {str(voter): self._peer_address(voter) for voter in self._voter_ids}
        return QuorateNode(
            self._folder / f"node-{node_id}",
            node_id=node_id,
            settings={
                "cluster_id": "chaos",
                **self.credentials.keys(node_id),
                "rack": rack_of(node_id),
                "durability": self._durability,
                "peer_listen": f"{self._host(node_id)}:{self._peer_ports[node_id]}",
                "peer_advertised": self._peer_address(node_id),
                "voters": addresses,
            },
            configs=self._configs,
            host=self._host(node_id),
            command_start=() if self.network is None else self.network.command(node_id),
        )

    def _host(self, node_id: int) -> str:
        return "127.0.0.1" if self.network is None else self.network.hosts[node_id]

    def _peer_address(self, node_id: int) -> str:
        link = self.links.get(node_id)
        return f"{self._host(node_id)}:{self._peer_ports[node_id]}" if link is None else link.address


def rack_of(node_id: int) -> str:
    return f"rack-{node_id}"


def _network(node_ids: Sequence[int]) -> Network | None:
    try:
        return Network(node_ids).__enter__()
    except NetworkUnavailable as error:
        print(f"no network is cut, proxies stand in for it: {error}", file=sys.stderr)
        return None


def _small_disk(folder: Path) -> SmallDisk | None:
    try:
        return SmallDisk(folder)
    except OSError as error:
        print(f"no disk is filled up: {error}", file=sys.stderr)
        return None
