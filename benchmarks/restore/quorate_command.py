"""The contender whole command: ``quorate restore`` as a user types it, with the start of Python, Java and Spark."""

import contextlib
import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from benchmarks.contenders.jobs import Copied, serve_jobs
from benchmarks.restore.quorate_restore import config_text
from benchmarks.restore.restore_job import RestoreJob

_PR_SET_CHILD_SUBREAPER = 36


class _Report(msgspec.Struct):
    written_records: int


def restore(job: RestoreJob) -> Copied:
    with tempfile.TemporaryDirectory(prefix="quorate-benchmark-command-") as folder:
        config = Path(folder) / "restore.yaml"
        config.write_text(config_text(job))
        command = [str(Path(sys.executable).parent / "quorate"), "restore", "--config", str(config), "--format", "json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    # Spark's workers outlive the JVM that started them for a moment; their time counts once they are waited for.
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    return Copied(records=msgspec.json.decode(done.stdout, type=_Report).written_records)


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    serve_jobs(restore, RestoreJob)


if __name__ == "__main__":
    main()
