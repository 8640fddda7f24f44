"""A cluster on this machine: a process a node, started, described in ``cluster.json`` and stopped together."""

import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import uuid4

import msgspec

from quorate.cli.node_file import NodeFile
from quorate.cli.node_process import Lifeline, NodeProcess, load_the_broker
from quorate.cli.private_files import make_private_folder, write_private
from quorate.kernel.address import Address, parse_address
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.metadata.cluster_ids import new_cluster_id


class NodePorts(msgspec.Struct, frozen=True):
    kafka: int
    peer: int


class LocalNode:
    """One node: where it is, and its process while the cluster runs."""

    process: NodeProcess

    def __init__(self, node_id: int, ports: NodePorts, folder: Path) -> None:
        self.node_id = NodeId(node_id)
        self.address = f"127.0.0.1:{ports.kafka}"
        self.peer_address = f"127.0.0.1:{ports.peer}"
        self.folder = folder
        self.config_path = folder / "node.toml"
        self.log_path = folder / "node.log"

    def start(self, cluster: "ClusterPlan", lifeline: Lifeline) -> None:
        make_private_folder(self.folder)
        file = NodeFile(
            node_id=self.node_id,
            data_dir=str(self.folder / "data"),
            listen=self.address,
            peer_listen=self.peer_address,
            cluster_id=cluster.cluster_id,
            voters=cluster.voters,
            log_file=str(self.log_path),
            configs=cluster.configs,
        )
        write_private(self.config_path, file.text())
        self.process = NodeProcess(self.node_id, self.config_path, self.log_path, lifeline)


class ClusterPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What all nodes of a cluster are told alike."""

    cluster_id: str
    voters: Mapping[NodeId, str]
    configs: Mapping[str, str]


class LocalCluster:
    """A context manager: the nodes run inside the block. To be entered before any thread is started."""

    def __init__(self, folder: Path, ports: Sequence[NodePorts]) -> None:
        self._folder = folder
        self._lifeline: Lifeline | None = None
        self.nodes = [LocalNode(index + 1, port, folder / f"node-{index + 1}") for index, port in enumerate(ports)]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def __enter__(self) -> "LocalCluster":
        try:
            make_private_folder(self._folder)
        except OSError as error:
            raise QuorateError(f"the folder {self._folder} cannot be used: {error.strerror}") from None
        plan = self._plan()
        for node in self.nodes:
            for address in (node.address, node.peer_address):
                _check_is_free(parse_address(address))
        load_the_broker()
        self._lifeline = Lifeline()
        started = []
        try:
            for node in self.nodes:
                node.start(plan, self._lifeline)
                started.append(node)
            for node in self.nodes:
                node.process.wait_until_ready()
        except BaseException:
            _stop(started)
            raise
        self._describe(plan)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _stop(self.nodes)
        if self._lifeline is not None:
            self._lifeline.close()

    def ends(self) -> Iterator[LocalNode]:
        """The nodes as they end, each once, until none is left."""
        running = list(self.nodes)
        while running:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            for node in [node for node in running if not node.process.is_running]:
                running.remove(node)
                yield node

    def _plan(self) -> ClusterPlan:
        count = len(self.nodes)
        known = self._read_description()
        if known is not None and known["node_count"] > count:
            raise QuorateError(
                f"{self._folder} holds a cluster of {known['node_count']} nodes: "
                f"start it with --nodes {known['node_count']}, or name another folder with --data"
            )
        voters = self.nodes[: _voter_count(count)]
        return ClusterPlan(
            cluster_id=new_cluster_id(uuid4()) if known is None else known["cluster_id"],
            voters={node.node_id: node.peer_address for node in voters},
            configs={
                "group.initial.rebalance.delay.ms": "0",  # One developer's consumers need not wait for others.
                "default.replication.factor": str(min(count, 3)),
                "min.insync.replicas": "2" if count >= 3 else "1",
            },
        )

    def _read_description(self) -> dict[str, Any] | None:
        try:
            described = json.loads(self._path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise QuorateError(f"{self._path} cannot be read: {error}") from None
        return {"cluster_id": described["cluster_id"], "node_count": len(described["nodes"])}

    @property
    def _path(self) -> Path:
        return self._folder / "cluster.json"

    def _describe(self, plan: ClusterPlan) -> None:
        """Write ``cluster.json``, by which scripts find the nodes, and the next start the cluster's id."""
        description = {
            "cluster_id": plan.cluster_id,
            "bootstrap_servers": self.bootstrap_servers,
            "nodes": [
                {
                    "id": node.node_id,
                    "pid": node.process.pid,
                    "kafka": node.address,
                    "peer": node.peer_address,
                    "log": str(node.log_path),
                }
                for node in self.nodes
            ],
        }
        write_private(self._path, json.dumps(description, indent=2) + "\n")


def _voter_count(nodes: int) -> int:
    """An odd number: one more would have to agree, and none more may fail."""
    return min(nodes if nodes % 2 else nodes - 1, 5)


def _check_is_free(address: Address) -> None:
    """Before anything starts, lest one node that cannot listen leaves the others without it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as error:
            raise QuorateError(f"cannot listen on {address}: {error.strerror}; choose another --port") from None


def _stop(nodes: Sequence[LocalNode]) -> None:
    for node in nodes:
        node.process.ask_to_stop()
    for node in nodes:
        node.process.stop()
