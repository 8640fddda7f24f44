"""The limit as a system that takes turns with the others."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.certificates import Certificates
from benchmarks.systems import Durability
from tests.peers.child_process import ChildProcess, free_port


class TlsLimitSystem:
    name = "limit"
    serves_reads = False
    topic_configs: Sequence[tuple[str, str]] = ()

    def __init__(self, folder: Path, durability: Durability, certificates: Certificates) -> None:
        self.certificates: Certificates | None = certificates
        self._folder = folder
        self._durability = durability
        self._key_store = certificates.key_store
        self._process: ChildProcess | None = None
        self._port, self._tls_port = free_port(), free_port()
        self.data_dir = folder / "data"

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
        options = {
            "--port": self._port,
            "--tls-port": self._tls_port,
            "--key-store": self._key_store,
            "--data-dir": self.data_dir,
        }
        arguments = [str(part) for option in options.items() for part in option]
        if self._durability is Durability.FSYNC:
            arguments.append("--sync")
        self._process = ChildProcess(
            [sys.executable, "-m", "benchmarks.tls_limit", *arguments], self._folder / "limit.log"
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def discard(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def output(self) -> str:
        return self._process.output() if self._process else ""
