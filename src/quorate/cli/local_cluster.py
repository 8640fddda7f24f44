"""A cluster on this machine: a process a node, started, described in ``cluster.json`` and stopped together."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import uuid4

import msgspec

from quorate.kernel.errors import QuorateError
from quorate.metadata.cluster_ids import new_cluster_id

_START_TIMEOUT_S = 60
_STOP_TIMEOUT_S = 15


class NodePorts(msgspec.Struct, frozen=True):
    kafka: int
    peer: int


class NodeProcess:
    def __init__(self, node_id: int, ports: NodePorts, folder: Path) -> None:
        self.node_id = node_id
        self.address = f"127.0.0.1:{ports.kafka}"
        self.peer_address = f"127.0.0.1:{ports.peer}"
        self.folder = folder
        self.log_path = folder / "node.log"

    def start(self, cluster: "ClusterPlan") -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        config_path = self.folder / "node.toml"
        config_path.write_text(
            f"node_id = {self.node_id}\n"
            f"data_dir = {json.dumps(str(self.folder / 'data'))}\n"
            f"listen = {json.dumps(self.address)}\n"
            f"peer_listen = {json.dumps(self.peer_address)}\n"
            f"cluster_id = {json.dumps(cluster.cluster_id)}\n"
            "[voters]\n"
            + "".join(f"{node_id} = {json.dumps(address)}\n" for node_id, address in cluster.voters.items())
            + "[configs]\n"
            + "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in cluster.configs.items())
        )
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "quorate", "serve", "--config", str(config_path), "--until-stdin-closes"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches the parent alone, which stops its nodes in good order.
            )

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode().strip()
        if not line.startswith("ready: "):
            self.stop()
            raise QuorateError(f"node {self.node_id} did not start: {self._last_log_line()}")

    def ask_to_stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def _last_log_line(self) -> str:
        lines = self.log_path.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it ended with status {self.process.returncode}"


class ClusterPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What all nodes of a cluster are told alike."""

    cluster_id: str
    voters: Mapping[int, str]
    configs: Mapping[str, str]


class LocalCluster:
    """A context manager: the nodes run inside the block."""

    def __init__(self, folder: Path, ports: Sequence[NodePorts]) -> None:
        self._folder = folder
        self.nodes = [NodeProcess(index + 1, port, folder / f"node-{index + 1}") for index, port in enumerate(ports)]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def __enter__(self) -> "LocalCluster":
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise QuorateError(f"the folder {self._folder} cannot be used: {error.strerror}") from None
        plan = self._plan()
        started = []
        try:
            for node in self.nodes:
                node.start(plan)
                started.append(node)
            for node in self.nodes:
                node.wait_until_ready()
        except BaseException:
            for node in started:
                node.stop()
            raise
        self._describe(plan)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            node.ask_to_stop()
        for node in self.nodes:
            node.stop()

    def wait(self) -> None:
        """Return when any node has ended."""
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)

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
        draft = self._path.with_suffix(".json.new")
        draft.write_text(json.dumps(description, indent=2) + "\n")
        draft.replace(self._path)


def _voter_count(nodes: int) -> int:
    """An odd number: one more would have to agree, and none more may fail."""
    return min(nodes if nodes % 2 else nodes - 1, 5)
