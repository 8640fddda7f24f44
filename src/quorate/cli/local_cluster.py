"""A cluster on this machine: a process a node, started, described in ``cluster.json`` and stopped together."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from quorate.kernel.errors import QuorateError

_START_TIMEOUT_S = 60
_STOP_TIMEOUT_S = 15


class NodeProcess:
    def __init__(self, node_id: int, port: int, folder: Path) -> None:
        self.node_id = node_id
        self.address = f"127.0.0.1:{port}"
        self.folder = folder
        self.log_path = folder / "node.log"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        config_path = self.folder / "node.toml"
        config_path.write_text(
            f"node_id = {self.node_id}\n"
            f"data_dir = {json.dumps(str(self.folder / 'data'))}\n"
            f"listen = {json.dumps(self.address)}\n"
            "[configs]\n"
            '"group.initial.rebalance.delay.ms" = 0\n'  # One developer's consumers need not wait for others.
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


class LocalCluster:
    """A context manager: the nodes run inside the block."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
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
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_until_ready()
        self._describe()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            node.stop()

    def wait(self) -> None:
        """Return when any node has ended."""
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)

    def _describe(self) -> None:
        """Write ``cluster.json``, by which scripts find the nodes."""
        description = {
            "bootstrap_servers": self.bootstrap_servers,
            "nodes": [
                {"id": node.node_id, "pid": node.process.pid, "kafka": node.address, "log": str(node.log_path)}
                for node in self.nodes
            ],
        }
        target = self._folder / "cluster.json"
        draft = target.with_suffix(".json.new")
        draft.write_text(json.dumps(description, indent=2) + "\n")
        draft.replace(target)
