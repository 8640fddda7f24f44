"""The two clusters: three nodes each, one process a node, ids that are not 1, 2, 3; killed and stopped by pid.

Both have their defaults, with three replicas of which two must be in sync. Apache Kafka has the JVM options of its own
start script.
"""

import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.systems import KAFKA_JVM_OPTIONS, ApacheKafkaSystem, Durability, QuorateSystem
from quorate.broker.peer_credentials import SECRET_FILE_NAME, make_secret_file
from tests.peers.apache_kafka import ApacheKafka, ApacheKafkaNode
from tests.peers.child_process import ChildProcess, free_port
from tests.peers.jars import java_command
from tests.peers.network import Network

NODE_IDS = (7, 100, 4001)
LOOPBACK = "127.0.0.1"
Address = tuple[str, int]


class ClusterNode(Protocol):
    node_id: int
    data_dir: Path

    @property
    def address(self) -> Address: ...
    @property
    def process(self) -> ChildProcess: ...
    def launch(self) -> None:
        """Start the process on whatever its data directory has; does not wait."""
        ...


class ClusterSystem(Protocol):
    name: str
    # What makes a topic's writes as durable as this run asks for, where that is not a setting of the nodes.
    topic_configs: Sequence[tuple[str, str]]

    @property
    def nodes(self) -> Mapping[int, ClusterNode]: ...
    def launch(self) -> None: ...
    def stop(self) -> None:
        """End all nodes, in order where that does not take a quorum. Their data stays."""
        ...

    def discard(self) -> None:
        """Kill what runs and remove all files."""
        ...


def bootstrap_servers(system: ClusterSystem) -> str:
    return ",".join("{}:{}".format(*node.address) for node in system.nodes.values())


class QuorateClusterNode:
    def __init__(
        self, node_id: int, folder: Path, host: str, command_start: Sequence[str], profile: Path | None
    ) -> None:
        self.node_id = node_id
        self.data_dir = folder / f"data-{node_id}"
        self.address = (host, free_port())
        self.peer_address = f"{host}:{free_port()}"
        self.config_path = folder / f"node-{node_id}.toml"
        self.log_path = folder / f"node-{node_id}.log"
        self._command_start = [*command_start, *_program(node_id, profile)]
        self._process: ChildProcess | None = None

    @property
    def process(self) -> ChildProcess:
        assert self._process is not None
        return self._process

    @property
    def was_launched(self) -> bool:
        return self._process is not None

    def launch(self) -> None:
        self._process = ChildProcess([*self._command_start, "serve", "--config", str(self.config_path)], self.log_path)


class QuorateCluster:
    name = QuorateSystem.name
    topic_configs: Sequence[tuple[str, str]] = ()

    def __init__(self, durability: Durability, network: Network | None = None, profile: Path | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="quorate-benchmark-cluster-"))
        self.nodes = {
            node_id: QuorateClusterNode(
                node_id, self._folder, _host(network, node_id), _command_start(network, node_id), profile
            )
            for node_id in NODE_IDS
        }
        secret_file = self._folder / SECRET_FILE_NAME
        make_secret_file(secret_file)
        voters = "".join(f'{node_id} = "{node.peer_address}"\n' for node_id, node in self.nodes.items())
        for node_id, node in self.nodes.items():
            node.config_path.write_text(
                f'node_id = {node_id}\ndata_dir = "{node.data_dir}"\ncluster_id = "benchmark"\n'
                f'cluster_secret_file = "{secret_file}"\nlisten = "{node.address[0]}:{node.address[1]}"\n'
                f'peer_listen = "{node.peer_address}"\ndurability = "{durability}"\n[voters]\n{voters}'
                '[configs]\n"default.replication.factor" = 3\n"min.insync.replicas" = 2\n'
            )

    def launch(self) -> None:
        for node in self.nodes.values():
            node.launch()

    def stop(self) -> None:
        for node in self.nodes.values():
            if node.was_launched:
                node.process.stop()

    def discard(self) -> None:
        for node in self.nodes.values():
            if node.was_launched:
                node.process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


class KafkaClusterNode(ApacheKafkaNode):
    """The peer's node, on an address and with a command that may belong to a network of its own."""

    def __init__(self, node_id: int, folder: Path, heap_mb: int, host: str, command_start: Sequence[str]) -> None:
        super().__init__(node_id, folder, heap_mb, (f"-Xms{heap_mb}m", *KAFKA_JVM_OPTIONS))
        self.host = host
        self._command_start = command_start

    @property
    def address(self) -> Address:
        return self.host, self.port

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def launch(self) -> None:
        command = java_command(
            "kafka.Kafka", str(self.properties_path), heap_mb=self._heap_mb, jvm_options=self._jvm_options
        )
        self._process = ChildProcess([*self._command_start, *command], self._log_path)


class _KafkaOnNetwork(ApacheKafka):
    def format(self, overrides: Mapping[str, str]) -> None:
        """Write the settings and format the storage, which takes JVMs of its own and is never timed."""
        self._format(overrides)

    def _settings(self, node: ApacheKafkaNode) -> dict[str, str]:
        assert isinstance(node, KafkaClusterNode)
        hosts = {peer.node_id: peer.host for peer in self.nodes.values() if isinstance(peer, KafkaClusterNode)}
        voters = [f"{peer.node_id}@{hosts[peer.node_id]}:{peer.controller_port}" for peer in self.nodes.values()]
        return super()._settings(node) | {
            "controller.quorum.voters": ",".join(voters),
            "listeners": f"PLAINTEXT://{node.bootstrap},CONTROLLER://{node.host}:{node.controller_port}",
        }


class KafkaCluster:
    name = ApacheKafkaSystem.name

    def __init__(self, durability: Durability, heap_mb: int, network: Network | None = None) -> None:
        self.topic_configs: Sequence[tuple[str, str]] = (
            (("flush.messages", "1"),) if durability is Durability.FSYNC else ()
        )
        folder = Path(tempfile.mkdtemp(prefix="quorate-benchmark-cluster-kafka-"))
        self.nodes = {
            node_id: KafkaClusterNode(
                node_id, folder, heap_mb, _host(network, node_id), _command_start(network, node_id)
            )
            for node_id in NODE_IDS
        }
        self._cluster = _KafkaOnNetwork(list(self.nodes.values()), folder)
        # Housekeeping only, as on a single node: the files of a removed topic go at once.
        self._cluster.format({"log.segment.delete.delay.ms": "200", "log.initial.task.delay.ms": "200"})

    def launch(self) -> None:
        for node in self.nodes.values():
            node.launch()

    def stop(self) -> None:
        """The last two cannot leave in order: there is no quorum any more that could release them."""
        for node in self.nodes.values():
            if node.launched:
                node.kill()

    def discard(self) -> None:
        self._cluster.stop()


def _host(network: Network | None, node_id: int) -> str:
    return network.hosts[node_id] if network else LOOPBACK


def _command_start(network: Network | None, node_id: int) -> list[str]:
    return network.command(node_id) if network else []


def _program(node_id: int, profile: Path | None) -> list[str]:
    script = str(Path(sys.executable).parent / "quorate")
    if profile is None:
        return [script]
    return [sys.executable, "-m", "cProfile", "-o", f"{profile}.{node_id}", script]
