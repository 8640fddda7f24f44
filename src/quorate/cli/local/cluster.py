"""A cluster on this machine: a process a node, started, described in ``cluster.json`` and stopped together."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from quorate.broker.config import NodeConfig
from quorate.broker.data_dir_lock import lock_data_dir
from quorate.cli.local.layout import Wishes, lay_out
from quorate.cli.local.node_process import Lifeline, NodeProcess, load_the_broker
from quorate.cli.local.private_files import make_private_folder, write_private
from quorate.kernel.errors import QuorateError


class LocalNode:
    """One node: where it is, and its process while the cluster runs."""

    process: NodeProcess

    def __init__(self, config_path: Path, config: NodeConfig) -> None:
        self.node_id = config.node_id
        self.address = str(config.advertised or config.listen)
        self.peer_address = str(config.peer_advertised or config.peer_listen)
        self.cluster_id = config.cluster_id
        self.config_path = config_path
        self.log_path = config_path.with_name("node.log")

    def start(self, lifeline: Lifeline) -> None:
        self.process = NodeProcess(self.node_id, self.config_path, self.log_path, lifeline)


class LocalCluster:
    """A context manager: the nodes run inside the block. To be entered before any thread is started."""

    def __init__(self, folder: Path, wishes: Wishes, say: Callable[[str], None] = lambda _: None) -> None:
        self._folder = folder
        self._wishes = wishes
        self._say = say
        self._held = ExitStack()
        self.nodes: list[LocalNode] = []

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def __enter__(self) -> "LocalCluster":
        with ExitStack() as held:
            self._take_folder(held)
            layout = lay_out(self._folder, self._wishes)
            try:
                layout.write()
            except OSError as error:
                raise QuorateError(f"the folder {self._folder} cannot be used: {error.strerror}") from None
            for line in layout.moved_ports:
                self._say(line)
            self.nodes = [LocalNode(path, config) for path, config in layout.nodes.items()]
            load_the_broker()
            lifeline = Lifeline()
            held.callback(lifeline.close)
            self._start(lifeline, held)
            self._describe()
            self._held = held.pop_all()
        return self

    def _take_folder(self, held: ExitStack) -> None:
        try:
            make_private_folder(self._folder)
        except OSError as error:
            raise QuorateError(f"the folder {self._folder} cannot be used: {error.strerror}") from None
        try:
            held.enter_context(lock_data_dir(str(self._folder)))
        except QuorateError as error:
            raise QuorateError(
                f"{error}: stop the cluster that runs there, or name another folder with --data"
            ) from None

    def _start(self, lifeline: Lifeline, held: ExitStack) -> None:
        started: list[LocalNode] = []
        held.callback(_stop, started)
        for node in self.nodes:
            node.start(lifeline)
            started.append(node)
        for node in self.nodes:
            node.process.wait_until_ready()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def ends(self) -> Iterator[LocalNode]:
        """The nodes as they end, each once, until none is left."""
        running = list(self.nodes)
        while running:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            for node in [node for node in running if not node.process.is_running]:
                running.remove(node)
                yield node

    @property
    def _path(self) -> Path:
        return self._folder / "cluster.json"

    def _describe(self) -> None:
        """Write ``cluster.json``, by which scripts find the nodes."""
        description = {
            "cluster_id": self.nodes[0].cluster_id,
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


def _stop(nodes: Sequence[LocalNode]) -> None:
    for node in nodes:
        node.process.ask_to_stop()
    for node in nodes:
        node.process.stop()
