"""A whole cluster in one background thread, for tests: nodes that can be killed and started again one by one.

Its ports are its process's own: tests that run side by side do not take each other's, neither between the moment when a
port is found free and that when a node listens on it, nor while its node is down.
"""

import asyncio
import logging
import random
import shutil
import socket
import tempfile
import threading
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TextIO, TypeVar

from quorate.broker.config import NodeConfig
from quorate.broker.data_dir_lock import lock_data_dir
from quorate.broker.descriptors import raise_limit
from quorate.broker.loop_watchdog import LoopHolds, LoopWatchdog
from quorate.broker.node import Environment, NodeEnd
from quorate.broker.peer_credentials import SECRET_FILE_NAME, make_secret_file
from quorate.broker.process import ServedNode, SystemClock
from quorate.kernel.address import Address
from quorate.kernel.errors import KafkaError, QuorateError
from quorate.kernel.ids import NodeId
from quorate.kernel.settings import Durability
from quorate.kernel.tasks import TaskScope, logged_failures
from quorate.metadata.core.config_definitions import ConfigValue
from quorate.storage.os_disk import OsDisk, OsFile
from quorate.storage.pooled_disk import PooledDisk
from quorate.testing.security import (
    InProcessSecurity,
    Library,
    Secured,
    plaintext_access,
    set_user_commands,
    settings_of,
)

try:
    import fcntl
except ImportError:  # No such locks on this system.
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")

logger = logging.getLogger(__name__)

_HOST = "127.0.0.1"
_NOT_STARTED = "the cluster has not been started: use it as a context manager, with a with statement"
_TIMEOUT_S = 60
_WORKER_THREADS = 8
# Below the range that systems hand to outgoing connections (32768 and up): a port stays free while its node is down,
# and a client that tries again cannot connect to itself.
_PORTS = range(20_000, 32_000)
_PORTS_A_PROCESS = 500
_given_lately: deque[int] = deque(maxlen=_PORTS_A_PROCESS // 2)
_held_locks: list[TextIO] = []


class ClusterInProcess:
    """A context manager. ``nodes`` is how many, or the ids they are to have; ``configs`` are Kafka's broker configs.

    ``secured`` is the security protocol of its listener: ``SASL_SSL``, which True means too, ``SASL_PLAINTEXT`` or
    ``SSL``. With SASL there is an authorizer: ``username`` may do everything, and others that ``add_user`` makes what
    ACLs allow, unless ``configs`` say ``"authorizer.class.name": ""``. With SSL everybody may do everything, and
    ``client_certificate`` is one of ``username`` for those who want to show who they are. Nodes always prove to each
    other who they are, and where clients have TLS, they have it too.
    """

    def __init__(
        self,
        nodes: int | Sequence[int] = 3,
        *,
        configs: Mapping[str, ConfigValue] | None = None,
        folder: Path | None = None,
        secured: bool | Secured = False,
    ) -> None:
        ids = range(1, nodes + 1) if isinstance(nodes, int) else nodes
        self.node_ids = tuple(NodeId(node_id) for node_id in ids)
        if not self.node_ids:
            raise QuorateError("a cluster has at least one node")
        self._configs = _defaults(len(self.node_ids)) | {name: _text(value) for name, value in (configs or {}).items()}
        self._security = None if secured is False else InProcessSecurity(secured)
        self._keeps_folder = folder is not None
        self._folder = folder
        self._planned: dict[NodeId, NodeConfig] = {}
        self._running: dict[NodeId, _LockedNode] = {}
        #: Turns of the loop that all nodes share that took too long.
        self.loop_holds = LoopHolds()

    @property
    def bootstrap_servers(self) -> str:
        """All nodes, running or not; what Kafka clients call ``bootstrap.servers``."""
        return ",".join(str(self._node_configs[node_id].listen) for node_id in self.node_ids)

    @property
    def _node_configs(self) -> Mapping[NodeId, NodeConfig]:
        if not self._planned:
            raise QuorateError(_NOT_STARTED)
        return self._planned

    @property
    def secret_file(self) -> Path:
        """With the secret that these nodes share, for one that is to join them."""
        return Path(next(iter(self._node_configs.values())).cluster_secret_file or "")

    @property
    def username(self) -> str:
        """The first user of a secured cluster, who may do everything."""
        return self._secured.username

    @property
    def password(self) -> str:
        return self._secured.password

    @property
    def client_properties(self) -> Path:
        """For Java's clients and tools, and ``--command-config``: how to connect as ``username``."""
        return self._secured.files.client_properties

    @property
    def ca_file(self) -> Path:
        """The authority to trust, in PEM."""
        return self._secured.ca_file

    @property
    def client_certificate(self) -> Path:
        """Of ``username``, with its key, in PEM; where the protocol is SSL."""
        return self._secured.client_certificate

    @property
    def _secured(self) -> "InProcessSecurity":
        if self._security is None:
            raise QuorateError("the cluster is not secured: make it with ClusterInProcess(secured=True)")
        if not self._planned:
            raise QuorateError(_NOT_STARTED)
        return self._security

    def client_settings(
        self, library: Library, username: str | None = None, password: str | None = None
    ) -> dict[str, Any]:
        """For a client of ``"librdkafka"``, ``"kafka-python"``, ``"aiokafka"`` or ``"java"``, secured or not.

        Whose, if not of the first user, ``username`` and ``password`` say.
        """
        servers = self.bootstrap_servers
        if self._security is not None:
            return settings_of(library, self._security.access(servers, username, password))
        return settings_of(library, plaintext_access(servers))

    def add_user(self, name: str, password: str) -> None:
        """Make a user who can log in, or give one another password. All running nodes know it when this returns."""
        self._secured.check_user(name, password)
        self._do(self._add_user(name, password))

    async def _add_user(self, name: str, password: str) -> None:
        if not self._running:
            raise QuorateError("no node is running")
        stores = [node.served.node.metadata for node in self._running.values()]
        commands = await self._loop.run_in_executor(self._executor, set_user_commands, name, password)
        for outcome in await stores[0].submit(commands):
            if isinstance(outcome, KafkaError):
                raise QuorateError(f"the user was not made: {outcome}")
        version = stores[0].image.version
        await asyncio.gather(*(store.reached(version, _TIMEOUT_S) for store in stores))

    def address_of(self, node_id: int) -> str:
        [known] = self._known([node_id])
        return str(self._node_configs[known].listen)

    def __enter__(self) -> Self:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="quorate-"))
        self._planned = self._plan(self._folder)
        self._loop = _new_event_loop()
        #: All nodes share the descriptors of the process, which belongs to the tests: half of those are left to them.
        self._disk = PooledDisk(_UnsyncedDisk(), raise_limit() // 2)
        self._executor = ThreadPoolExecutor(_WORKER_THREADS, thread_name_prefix="quorate-worker")
        self._thread = threading.Thread(target=self._loop.run_forever, name="quorate-cluster", daemon=True)
        self._thread.start()
        self._watchdog = LoopWatchdog(self._loop, self.loop_holds)
        self._loop.call_soon_threadsafe(self._watchdog.start)
        try:
            self._do(self._start(self.node_ids))
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def kill(self, *node_ids: int) -> None:
        """End nodes without a word to the others. What they had not written to their files yet is not written."""
        self._do(self._stop(self._require_running(node_ids), hands_over=False))

    def stop(self, *node_ids: int) -> None:
        """Stop nodes in good order: others take over first what they lead."""
        self._do(self._stop(self._require_running(node_ids), hands_over=True))

    def restart(self, *node_ids: int) -> None:
        """Start nodes again that were killed or stopped, where they were and with what they had.

        Returns when they are ready, so start those together that need each other for a majority.
        """
        for node_id in self._known(node_ids):
            if node_id in self._running:
                raise QuorateError(f"node {node_id} is running")
        self._do(self._start(node_ids))

    def _require_running(self, node_ids: Sequence[int]) -> list[NodeId]:
        """Judged before anything is done to the first of them."""
        for node_id in (known := self._known(node_ids)):
            if node_id not in self._running:
                raise QuorateError(f"node {node_id} is not running")
        return known

    def _known(self, node_ids: Sequence[int]) -> list[NodeId]:
        for index, node_id in enumerate(node_ids):
            if node_id not in self.node_ids:
                names = ", ".join(str(each) for each in self.node_ids)
                raise QuorateError(f"this cluster has no node {node_id}: its nodes are {names}")
            if node_id in node_ids[:index]:
                raise QuorateError(f"node {node_id} is named twice")
        return [NodeId(node_id) for node_id in node_ids]

    def _plan(self, folder: Path) -> dict[NodeId, NodeConfig]:
        ports = iter(free_ports(2 * len(self.node_ids)))
        clients = {node_id: Address(_HOST, next(ports)) for node_id in self.node_ids}
        peers = {node_id: Address(_HOST, next(ports)) for node_id in self.node_ids}
        folder.mkdir(parents=True, exist_ok=True)
        secret_file = folder / SECRET_FILE_NAME
        make_secret_file(secret_file)
        security = self._security
        if security is not None:
            security.prepare(folder, self.node_ids, ",".join(map(str, clients.values())))
        return {
            node_id: NodeConfig(
                node_id=node_id,
                data_dir=str(folder / f"node-{node_id}"),
                listen=clients[node_id],
                peer_listen=peers[node_id],
                voters=peers,
                cluster_id="in-process",
                cluster_secret_file=str(secret_file),
                durability=Durability.OS,
                peer_certificate_file=None if security is None else security.peer_certificate_of(node_id),
                peer_ca_file=None if security is None else security.peer_ca_file,
                first_user=None if security is None else security.first_user,
                configs=({} if security is None else security.configs(node_id, clients[node_id])) | self._configs,
            )
            for node_id in self.node_ids
        }

    async def _start(self, node_ids: Iterable[int]) -> None:
        environment = self._environment()
        starting = [_LockedNode.start(self._node_configs[NodeId(node_id)], environment) for node_id in node_ids]
        for started in await asyncio.gather(*starting):
            self._running[started.node_id] = started

    async def _stop(self, node_ids: Iterable[int], *, hands_over: bool) -> None:
        nodes = [self._running.pop(NodeId(node_id)) for node_id in node_ids]
        await asyncio.gather(*(node.stop(hands_over=hands_over) for node in nodes))

    def _environment(self) -> Environment:
        return Environment(
            loop=self._loop,
            clock=SystemClock(),
            disk=self._disk,
            executor=self._executor,
            quorum_executor=self._executor,
            random=random.SystemRandom(),
        )

    def _close(self) -> None:
        self._do(self._stop(tuple(self._running), hands_over=False))
        self._loop.call_soon_threadsafe(self._watchdog.stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._executor.shutdown()
        self._loop.close()
        if not self._keeps_folder and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT_S)


class _LockedNode:
    """A node that holds the lock of its data folder, and ends by itself when it cannot go on."""

    def __init__(self, served: ServedNode, held: ExitStack) -> None:
        self.node_id = served.node.config.node_id
        self.served = served
        self._held = held
        self._ending = TaskScope(served.node.loop, logged_failures(logger, f"the end of node {self.node_id}"))
        self._failing = self._ending.spawn(self._end_when_failed())

    @classmethod
    async def start(cls, config: NodeConfig, environment: Environment) -> "_LockedNode":
        with ExitStack() as held:
            held.enter_context(lock_data_dir(config.data_dir))
            return cls(await ServedNode.start(config, environment, NodeEnd(config.node_id)), held.pop_all())
        raise AssertionError("a lock does not swallow exceptions")

    async def stop(self, *, hands_over: bool) -> None:
        if self.served.node.end.failure is not None:
            await self._failing
            return
        await self._ending.close()
        await self._end(hands_over=hands_over)

    async def _end_when_failed(self) -> None:
        """As its process would: a node that was removed, say, must not go on answering."""
        await self.served.node.end.is_due.wait()
        await self._end(hands_over=False)

    async def _end(self, *, hands_over: bool) -> None:
        with self._held:
            await self.served.stop(hands_over=hands_over)


def _defaults(count: int) -> dict[str, str]:
    return {
        "group.initial.rebalance.delay.ms": "0",  # No test waits for more members to come.
        "offsets.topic.num.partitions": "4",
        "default.replication.factor": str(min(count, 3)),
        "offsets.topic.replication.factor": str(min(count, 3)),
        "min.insync.replicas": "2" if count >= 3 else "1",
    }


def _text(value: ConfigValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class _UnsyncedFile(OsFile):
    __slots__ = ()

    def sync(self) -> None:
        pass


class _UnsyncedDisk(OsDisk):
    """The real disk without waiting for it: what a test writes need not survive a power cut."""

    __slots__ = ()

    _file_type: ClassVar[type[OsFile]] = _UnsyncedFile

    def sync_directory(self, path: str) -> None:
        pass


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports, free at this moment, and not given to somebody who has yet to listen on them."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(_own_ports())
        if port not in _given_lately and is_free_port(port):
            found.append(port)
            _given_lately.append(port)
    return found


def is_free_port(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@cache
def _own_ports() -> range:
    """Those of the first lock file that nobody holds. It is held until this process ends."""
    for first in _PORTS[::_PORTS_A_PROCESS] if fcntl is not None else ():
        try:
            lock = (Path(tempfile.gettempdir()) / f"quorate-ports-{first}").open("a")
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        _held_locks.append(lock)
        return range(first, first + _PORTS_A_PROCESS)
    return _PORTS
