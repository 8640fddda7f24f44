"""The demo's backup and restore: the commands that a user would type, and a leader that dies in the middle of one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quorate.cli.demo.clients import StockProducer, leader_of
from quorate.cli.local.cluster import LocalCluster
from quorate.kernel.errors import QuorateError

_ID = "demo"
_POLL_S = 0.05
#: Slow enough for a leader to die in the middle of it.
_RATE_LIMIT_BYTES_PER_SECOND = 10_000_000


class DemoBackup:
    def __init__(self, source: LocalCluster, target: LocalCluster, topic: str, folder: Path) -> None:
        self._source = source
        self._target = target
        self._topic = topic
        self._folder = folder
        self._storage = folder / "backups"

    def start_backup(self) -> None:
        """Returns when the first batches are being stored."""
        config = self._write(
            "backup.yaml",
            backup_id=_ID,
            source={
                "bootstrap_servers": self._source.bootstrap_servers.split(","),
                "topics": {"include": [self._topic]},
            },
            storage={"url": self._storage.as_uri()},
            backup={"rate_limit_bytes_per_second": _RATE_LIMIT_BYTES_PER_SECOND},
        )
        self._backup = _start("backup", "--config", config, "--format", "json")
        with _ended_with_the_demo(self._backup):
            while self._backup.poll() is None and not any(self._storage.glob("*/topics/**/*.partial")):
                time.sleep(_POLL_S)

    def kill_leader(self, producer: StockProducer) -> str:
        """End the node that leads a partition without a warning, and write to that partition."""
        partition = 0
        leader = leader_of(self._source.bootstrap_servers, self._topic, partition)
        [node] = [node for node in self._source.nodes if node.node_id == leader]
        killed_at = time.monotonic()
        os.kill(node.process.pid, signal.SIGKILL)
        producer.write_one(self._topic, partition)
        took_ms = (time.monotonic() - killed_at) * 1000
        return (
            f"kill -9 of node {leader}, leader of {self._topic}-{partition}, in the middle of a backup; "
            f"the next write was acknowledged after {took_ms:.0f} ms"
        )

    def finish_backup(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(_finish(self._backup, "backup"))
        return report

    def verify(self) -> str:
        arguments = ("--storage", self._storage.as_uri(), "--backup-id", _ID, "--deep")
        return _finish(_start("verify", *arguments), "verify").strip().splitlines()[-1]

    def restore(self) -> dict[str, Any]:
        config = self._write(
            "restore.yaml",
            backup_id=_ID,
            target={"bootstrap_servers": self._target.bootstrap_servers.split(",")},
            storage={"url": self._storage.as_uri()},
            restore={"consumer_groups": {"include": ["*"]}},
        )
        report: dict[str, Any] = json.loads(
            _finish(_start("restore", "--config", config, "--format", "json"), "restore")
        )
        return report

    def _write(self, name: str, **settings: Any) -> str:
        path = self._folder / name
        path.write_text(json.dumps(settings))  # JSON is YAML, too.
        return str(path)


def _start(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "quorate", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@contextmanager
def _ended_with_the_demo(process: "subprocess.Popen[str]") -> Iterator[None]:
    try:
        yield
    except BaseException:
        process.terminate()
        process.communicate()
        raise


def _finish(process: "subprocess.Popen[str]", command: str) -> str:
    """The output of the command, or the sentence in which it says what is wrong."""
    with _ended_with_the_demo(process):
        output, errors = process.communicate()
    if process.returncode != 0:
        raise QuorateError(f"quorate {command} failed: {errors.strip().splitlines()[-1]}")
    return output
