"""The two systems under measurement, each one node with its files in a folder of its own, stopped by pid.

Apache Kafka gets the JVM options of its own start script; the peer's usual ones, which start quickly and never compile
to full speed, would make it slow. Beyond what a single node needs, both run with their defaults.
"""

import shutil
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from benchmarks.certificates import Certificates
from tests.peers.apache_kafka import ApacheKafka, ApacheKafkaNode
from tests.peers.child_process import ChildProcess, free_port

# As bin/kafka-server-start.sh and bin/kafka-run-class.sh set them, the heap's size apart.
KAFKA_JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
KAFKA_HEAP_MB = 1024
NODE_ID = 7
FORMATTED_FILES = ("meta.properties", "bootstrap.checkpoint")


class Durability(StrEnum):
    """When an acknowledged write is safe: in the page cache, or on the disk."""

    OS = "os"
    FSYNC = "fsync"


class System(Protocol):
    """A node that can be launched, on an empty data directory, any number of times."""

    name: str
    # What makes a topic's writes as durable as this run asks for, where that is not a setting of the node.
    topic_configs: Sequence[tuple[str, str]]

    # Of a run over TLS, whose load goes to a listener of its own.
    certificates: Certificates | None
    # Whether what was written can be read back.
    serves_reads: bool

    @property
    def address(self) -> tuple[str, int]: ...
    @property
    def tls_address(self) -> tuple[str, int]: ...
    @property
    def pid(self) -> int: ...
    @property
    def data_dir(self) -> Path: ...
    def launch(self) -> None:
        """Start the process on an empty data directory; does not wait."""
        ...

    def stop(self) -> None: ...
    def discard(self) -> None:
        """Remove all files."""
        ...

    def output(self) -> str: ...


class QuorateSystem:
    name = "Quorate"
    serves_reads = True
    topic_configs: Sequence[tuple[str, str]] = ()

    def __init__(
        self,
        folder: Path,
        durability: Durability,
        profile: Path | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        self.certificates = certificates
        self._folder = folder
        self._profile = profile
        self._process: ChildProcess | None = None
        self._port, self._tls_port = free_port(), free_port()
        self.data_dir = folder / "data"
        self._config_path = folder / "node.toml"
        self._config_path.write_text(
            f'node_id = {NODE_ID}\ndata_dir = "{self.data_dir}"\ndurability = "{durability}"\n' + self._listeners()
        )

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._port

    @property
    def tls_address(self) -> tuple[str, int]:
        return "127.0.0.1", self._tls_port

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def launch(self) -> None:
        shutil.rmtree(self.data_dir, ignore_errors=True)
        self._process = ChildProcess(
            [*self._program(), "serve", "--config", str(self._config_path)], self._folder / "node.log"
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def discard(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def output(self) -> str:
        return self._process.output() if self._process else ""

    def _listeners(self) -> str:
        if self.certificates is None:
            return f'listen = "127.0.0.1:{self._port}"\n'
        return (
            f'listeners = ["PLAINTEXT://127.0.0.1:{self._port}", "SSL://127.0.0.1:{self._tls_port}"]\n'
            f'"ssl.keystore.location" = "{self.certificates.key_store}"\n'
        )

    def _program(self) -> list[str]:
        script = str(Path(sys.executable).parent / "quorate")
        if self._profile is None:
            return [script]
        return [sys.executable, "-m", "cProfile", "-o", str(self._profile), script]


class ApacheKafkaSystem:
    name = "Apache Kafka"
    serves_reads = True

    def __init__(
        self, durability: Durability, heap_mb: int = KAFKA_HEAP_MB, certificates: Certificates | None = None
    ) -> None:
        self.certificates = certificates
        overrides = {
            "num.partitions": "1",
            # Housekeeping only: a removed topic's files must not be written back during the other system's turn. Not 0:
            # the task that removes them would then run every millisecond.
            "log.segment.delete.delay.ms": "200",
            "log.initial.task.delay.ms": "200",
        }
        # Per topic rather than per node, so that warming up is not held up by the disk.
        self.topic_configs: Sequence[tuple[str, str]] = (
            (("flush.messages", "1"),) if durability is Durability.FSYNC else ()
        )
        options = (f"-Xms{heap_mb}m", *KAFKA_JVM_OPTIONS)
        self._cluster = ApacheKafka.start((NODE_ID,), overrides, heap_mb=heap_mb, jvm_options=options)
        self._node: ApacheKafkaNode = self._cluster.nodes[NODE_ID]
        self._node.kill()
        self._tls_port = free_port()
        if certificates is not None:
            self._add_tls_listener(certificates)

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._node.port

    @property
    def tls_address(self) -> tuple[str, int]:
        return "127.0.0.1", self._tls_port

    @property
    def pid(self) -> int:
        return self._node.pid

    @property
    def data_dir(self) -> Path:
        return self._node.data_dir

    def launch(self) -> None:
        self._return_to_freshly_formatted()
        self._node.launch()

    def stop(self) -> None:
        if self._node.process.running:
            self._node.kill()

    def discard(self) -> None:
        self._cluster.stop()

    def output(self) -> str:
        return self._node.process.output()

    def _add_tls_listener(self, certificates: Certificates) -> None:
        """Of two lines for a property the later one holds."""
        plain, secured = f"PLAINTEXT://{self._node.bootstrap}", f"SSL://127.0.0.1:{self._tls_port}"
        settings = {
            "listeners": f"{plain},{secured},CONTROLLER://127.0.0.1:{self._node.controller_port}",
            "advertised.listeners": f"{plain},{secured}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates.key_store),
        }
        with self._node.properties_path.open("a") as properties:
            properties.writelines(f"{key}={value}\n" for key, value in settings.items())

    def _return_to_freshly_formatted(self) -> None:
        """Leave only what the storage tool wrote, which costs a JVM of its own and is never timed."""
        for entry in self.data_dir.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name not in FORMATTED_FILES:
                entry.unlink()
