"""The process of a stock producer that writes all the time, and what it is asked: see ``librdkafka_probe.py``."""

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.cluster.cases import Client
from benchmarks.connection import RequestFailed
from tests.peers.jars import java_command

_JAVA_SOURCE = Path(__file__).parent / "java" / "ProduceProbe.java"
# The client at its defaults in a JVM at its defaults, but for the time it takes to start.
_JVM_OPTIONS = ("-XX:+UseSerialGC", "-Xshare:auto")


class Probe:
    def __init__(self, client: Client, bootstrap: str, topic: str, partitions: int, log: Path) -> None:
        self.client = client
        self._log = log
        self._arguments = _command(client, bootstrap, topic, str(partitions))
        self._process = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def forget(self) -> None:
        """Begin a round as if no node had failed before.

        librdkafka counts how often it had to connect to a node, forgets it 10 s after the last time, and waits up to
        10 s before it connects again, even to a node that is back (``reconnect.backoff.max.ms``): rounds that follow
        each other sooner would measure those before them. The most that Java waits is 1 s.
        """
        if self.client is Client.LIBRDKAFKA:
            self._stop()
            self._process = self._start()

    def switch_to(self, partition: int) -> None:
        self._ask(f"partition {partition}")

    def acknowledged_lately(self) -> int:
        """How many records in the last 300 ms; it hands over 150."""
        return int(self._ask("lately"))

    def first_acknowledged_ns(self, handed_over_after_ns: int) -> tuple[int, int]:
        """When a record that was handed over after that moment was first acknowledged, or 0; and how many failed."""
        first_ns, failed = map(int, self._ask(f"first {handed_over_after_ns}").split())
        return first_ns, failed

    def _start(self) -> "subprocess.Popen[bytes]":
        with self._log.open("wb") as sink:
            return subprocess.Popen(self._arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink)

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _ask(self, command: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{command}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # The missing answer says why.
        line = self._process.stdout.readline()
        if not line:
            raise RequestFailed(f"the {self.client} client ended:\n{self._log.read_text(errors='replace')[-2000:]}")
        return line.decode().strip()


def _command(client: Client, *arguments: str) -> list[str]:
    if client is Client.JAVA:
        return java_command(str(_JAVA_SOURCE), *arguments, jvm_options=_JVM_OPTIONS)
    return [sys.executable, "-m", "benchmarks.cluster.librdkafka_probe", *arguments]
