"""A real Apache Kafka on loopback: one or more nodes in combined mode, with node ids that are not 1, 2, 3."""

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from tests.peers.child_process import ChildProcess, free_port
from tests.peers.jars import QUICK_START_OPTIONS, java_command

START_TIMEOUT_S = 120
STARTED_LINE = "Kafka Server started"
LOG_LEVEL_OPTION = "-Dquorate.log.level=info"


class ApacheKafkaNode:
    """One broker and controller. Start it, kill it, start it again: data directory and ports stay."""

    def __init__(
        self, node_id: int, folder: Path, heap_mb: int, jvm_options: Sequence[str], more_jars: Sequence[Path] = ()
    ) -> None:
        self.node_id = node_id
        self.port = free_port()
        self.controller_port = free_port()
        self.data_dir = folder / f"data-{node_id}"
        self.properties_path = folder / f"server-{node_id}.properties"
        self._log_path = folder / f"server-{node_id}.log"
        self._heap_mb = heap_mb
        self._jvm_options = (*jvm_options, LOG_LEVEL_OPTION)
        self._more_jars = more_jars
        self._process: ChildProcess | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def launched(self) -> bool:
        return self._process is not None

    @property
    def process(self) -> ChildProcess:
        assert self._process is not None, f"node {self.node_id} was never launched"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    def log_text(self) -> str:
        """All that its processes have written so far."""
        return self._log_path.read_text(errors="replace")

    def launch(self) -> None:
        """Start the process without waiting: a quorum of three is ready only when two of them run."""
        command = java_command(
            "kafka.Kafka",
            str(self.properties_path),
            heap_mb=self._heap_mb,
            jvm_options=self._jvm_options,
            more_jars=self._more_jars,
        )
        self._process = ChildProcess(command, self._log_path)

    def wait_until_ready(self) -> None:
        self.process.wait_for_output(
            lambda output: STARTED_LINE if STARTED_LINE in output else None,
            f"Apache Kafka node {self.node_id} to be ready",
            START_TIMEOUT_S,
        )

    def restart(self) -> None:
        """Start the process on the same data directory and ports, and wait until it is ready."""
        self.launch()
        self.wait_until_ready()

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> None:
        self.process.stop()


class ApacheKafka:
    """A running cluster, and everything it wrote; both are gone after ``stop``."""

    def __init__(self, nodes: Sequence[ApacheKafkaNode], folder: Path) -> None:
        self.nodes: Mapping[int, ApacheKafkaNode] = {node.node_id: node for node in nodes}
        self._folder = folder

    @classmethod
    def start(
        cls,
        node_ids: Sequence[int] = (7,),
        overrides: Mapping[str, str] | None = None,
        heap_mb: int = 512,
        jvm_options: Sequence[str] = QUICK_START_OPTIONS,
        more_jars: Sequence[Path] = (),
    ) -> Self:
        folder = Path(tempfile.mkdtemp(prefix="quorate-apache-kafka-"))
        nodes = [ApacheKafkaNode(node_id, folder, heap_mb, jvm_options, more_jars) for node_id in node_ids]
        cluster = cls(nodes, folder)
        try:
            cluster._format(overrides or {})
            for node in cluster.nodes.values():
                node.launch()
            for node in cluster.nodes.values():
                node.wait_until_ready()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def stop(self) -> None:
        """The data goes too, so there is nothing to shut down in order: an orderly end of a quorum takes 30 s."""
        for node in self.nodes.values():
            if node.launched:
                node.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _format(self, overrides: Mapping[str, str]) -> None:
        cluster_id = uuid4().hex[:22]
        formatters = []
        for node in self.nodes.values():
            settings = self._settings(node) | dict(overrides)
            node.properties_path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            command = java_command(
                "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(node.properties_path)
            )
            formatters.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        for formatter in formatters:
            output, _ = formatter.communicate(timeout=START_TIMEOUT_S)
            assert formatter.returncode == 0, f"the storage could not be formatted:\n{output}"

    def _settings(self, node: ApacheKafkaNode) -> dict[str, str]:
        replicas = min(3, len(self.nodes))
        in_sync_replicas = min(2, len(self.nodes))
        voters = ",".join(f"{peer.node_id}@127.0.0.1:{peer.controller_port}" for peer in self.nodes.values())
        return {
            "process.roles": "broker,controller",
            "node.id": str(node.node_id),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{node.bootstrap},CONTROLLER://127.0.0.1:{node.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{node.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(node.data_dir),
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(in_sync_replicas),
            "offsets.topic.replication.factor": str(replicas),
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(in_sync_replicas),
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
        }
