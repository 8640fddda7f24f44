"""The contender kafka-backup: a program of others, in Rust, that a user has built and names. Nothing of it is here.

Each job is a run of its command, which starts in a tenth of a second; its settings are its fastest.
"""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import yaml

from benchmarks.contenders.jobs import Job

#: Where its binary is, unless an option says so.
VARIABLE: Final = "QUORATE_BENCHMARK_KAFKA_BACKUP"
BACKUP_ID: Final = "benchmark"
_VERSION_TIMEOUT_S = 10.0


class KafkaBackup(msgspec.Struct, frozen=True, kw_only=True):
    binary: Path
    version: str


class WrongBinaryError(Exception):
    """What was named is not kafka-backup."""


def find_kafka_backup(named: str | None) -> KafkaBackup | None:
    """The binary of this name, or of the variable's; None where there is neither."""
    named = named or os.environ.get(VARIABLE)
    if not named:
        return None
    try:
        outcome = subprocess.run(
            [named, "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WrongBinaryError(f"{named} cannot be run as kafka-backup: {error}") from None
    name, _, version = outcome.stdout.strip().partition(" ")
    if outcome.returncode or name != "kafka-backup":
        raise WrongBinaryError(f"{named} is not the Rust program kafka-backup: it knows no --version")
    return KafkaBackup(binary=Path(named).absolute(), version=version)


def describe(found: KafkaBackup | None) -> str:
    """For the head of a page."""
    if found is None:
        return f"not measured: no binary was named (--kafka-backup, {VARIABLE})"
    return f"{found.version}, one command for each job, with its fastest settings"


def run(binary: str, what: str, job: Job, config: Mapping[str, object]) -> None:
    """``what`` is its subcommand. Its output goes to the log of the contender."""
    shared = {
        "mode": what,
        "backup_id": BACKUP_ID,
        "storage": {"backend": "filesystem", "path": job.folder},
        "metrics": {"enabled": False},
    }
    # Its files beside the backup go where temporary files go, and each run begins without them.
    with tempfile.TemporaryDirectory(prefix="quorate-benchmark-kafka-backup-") as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(yaml.safe_dump({**shared, **config}))
        environment = {**os.environ, "TMPDIR": folder, "RUST_LOG": "error"}
        subprocess.run([binary, what, "--config", str(path)], env=environment, cwd=folder, check=True)
