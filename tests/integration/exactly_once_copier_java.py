"""The same application with Java's client, whose producer gets an epoch for every transaction (KIP-890)."""

import subprocess
import threading
from pathlib import Path

from tests.peers.jars import java_command

SOURCE = Path(__file__).parent / "java" / "ExactlyOnceCopier.java"


class JavaCopier:
    """One instance, in a JVM of its own."""

    def __init__(self, servers: str, name: str, *, source: str, target: str, group: str) -> None:
        self._command = java_command(str(SOURCE), servers, name, source, target, group)
        self.committed = 0
        self.failures: list[str] = []

    def start(self) -> None:
        pipe = subprocess.PIPE
        self._jvm = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self._listeners = [threading.Thread(target=listen, daemon=True) for listen in (self._count, self._collect)]
        for listener in self._listeners:
            listener.start()

    def stop(self) -> None:
        assert self._jvm.stdin is not None
        self._jvm.stdin.close()
        try:
            assert self._jvm.wait(60) == 0
        finally:
            self._jvm.kill()
            for listener in self._listeners:
                listener.join()

    def _count(self) -> None:
        assert self._jvm.stdout is not None
        for _ in self._jvm.stdout:
            self.committed += 1

    def _collect(self) -> None:
        assert self._jvm.stderr is not None
        self.failures.extend(self._jvm.stderr)
