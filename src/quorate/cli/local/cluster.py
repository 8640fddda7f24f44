"""A cluster on this machine: a process a node, started, described in ``cluster.json`` and stopped together.

The processes are forked from this one, so that all share what was imported once.
"""

import gc
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from quorate.broker.config import NodeConfig
from quorate.broker.data_dir_lock import lock_data_dir
from quorate.cli.local.layout import Wishes, lay_out
from quorate.cli.local.node_files import make_private_folder, write_private
from quorate.cli.local.security import ClusterSecurity
from quorate.kernel.errors import QuorateError

_STOP_TIMEOUT_S = 15
_POLL_S = 0.01
#: What a child says in place of being ready, and why.
_FAILED = "failed: "


class LocalNode:
    """One node: where it is, and its process while the cluster runs."""

    process: "NodeProcess"

    def __init__(self, config_path: Path, config: NodeConfig) -> None:
        self.node_id = config.node_id
        self.address = str(config.advertised or config.listen)
        self.peer_address = str(config.peer_advertised or config.peer_listen)
        self.cluster_id = config.cluster_id
        self.config_path = config_path
        self.log_path = config_path.with_name("node.log")

    def start(self, lifeline: "Lifeline") -> None:
        self.process = NodeProcess(self.node_id, self.config_path, self.log_path, lifeline)


class LocalCluster:
    """A context manager: the nodes run inside the block. To be entered before any thread is started."""

    def __init__(self, folder: Path, wishes: Wishes, say: Callable[[str], None] = lambda _: None) -> None:
        self._folder = folder
        self._wishes = wishes
        self._say = say
        self._held = ExitStack()
        self.nodes: list[LocalNode] = []
        #: None for a cluster that trusts whoever reaches it.
        self.security: ClusterSecurity | None = None

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def __enter__(self) -> "LocalCluster":
        with ExitStack() as held:
            self._take_folder(held)
            layout = lay_out(self._folder, self._wishes)
            try:
                told = layout.write()
            except OSError as error:
                raise QuorateError(f"the folder {self._folder} cannot be used: {error.strerror}") from None
            for line in told:
                self._say(line)
            self.security = layout.security
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
            str(self._folder).encode()
        except UnicodeEncodeError:  # It is to be named in files.
            raise QuorateError(f"the folder's name {str(self._folder)!r} is not UTF-8: name another one") from None
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

    def _start(self, lifeline: "Lifeline", held: ExitStack) -> None:
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
            "secured": self.security is not None,
            **({} if self.security is None else self.security.description()),
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


class Lifeline:
    """A pipe that nobody writes to. Its other end closes when this process ends, however it ends."""

    def __init__(self) -> None:
        self.for_children, self._held = os.pipe()

    def let_go(self) -> None:
        """In a child: only the parent's end counts."""
        os.close(self._held)

    def close(self) -> None:
        os.close(self.for_children)
        os.close(self._held)


def load_the_broker() -> None:
    """Import before the first fork what every node needs. There must be no threads yet."""
    import quorate.broker.process
    import quorate.cli.serve  # noqa: F401

    with suppress(ImportError):
        import uvloop  # noqa: F401
    gc.freeze()  # What is shared stays shared: the collector of a child need not touch it.


class NodeProcess:
    """A node that runs ``quorate serve`` on its file; what it logs goes to ``log_path``."""

    def __init__(self, node_id: int, config_path: Path, log_path: Path, lifeline: Lifeline) -> None:
        self.node_id = node_id
        self._log_path = log_path
        self._status: int | None = None
        read_end, write_end = os.pipe()
        self._output = os.fdopen(read_end)
        self.pid = os.fork()
        if self.pid == 0:
            _become_node(config_path, log_path, lifeline, write_end)
        os.close(write_end)

    def wait_until_ready(self) -> None:
        line = self._output.readline()
        if not line.startswith("ready: "):
            self.stop()
            why = line.removeprefix(_FAILED).strip() if line.startswith(_FAILED) else self._last_log_line()
            raise QuorateError(f"node {self.node_id} did not start: {why}")

    @property
    def is_running(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status is None

    def ask_to_stop(self) -> None:
        if self.is_running:
            os.kill(self.pid, signal.SIGTERM)

    def stop(self) -> None:
        self.ask_to_stop()
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while self.is_running:
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(_POLL_S)
        self._output.close()

    def _last_log_line(self) -> str:
        lines = self._log_path.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it ended with status {self._status}"


def _become_node(config_path: Path, log_path: Path, lifeline: Lifeline, output: int) -> NoReturn:
    """The child's whole life. It never returns into the code that called it."""
    status = 1
    try:
        os.setsid()  # Ctrl-C reaches the parent alone, which stops its nodes in good order.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        lifeline.let_go()
        for source, target in ((lifeline.for_children, 0), (output, 1), (log, 2)):
            os.dup2(source, target)
            os.close(source)
        from quorate.cli.serve import serve

        serve(config_path, until_stdin_closes=True)
        status = 0
    except QuorateError as error:
        with suppress(OSError):  # The parent may be gone.
            print(f"{_FAILED}{error}", flush=True)
        logging.getLogger(__name__).critical("node ended error=%s", error)
    except BaseException as error:
        logging.getLogger(__name__).critical("node ended error=%s", error, exc_info=True)
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
