"""Writes the archive of Spark's loaded classes: a small job on a JVM of its own, then the JVM's end. Does I/O.

Runs in the background, beside whatever the user does next, so with the lowest priority.
"""

import os
import tempfile
from pathlib import Path

from quorate.backup.spark.class_archive import ClassArchive, class_archive
from quorate.backup.spark.java import find_java
from quorate.backup.spark.spark_settings import SparkSettings, spark_conf
from quorate.backup.spark.task_progress import Report, ignore
from quorate.backup.spark.task_runner import Outcome

_PRIORITY = 19
_WRITING_TIMEOUT_S = 900
_TASKS = 2


def main() -> None:
    os.nice(_PRIORITY)
    record(class_archive(find_java(os.environ), os.environ))


def record(archive: ClassArchive, timeout_s: int = _WRITING_TIMEOUT_S) -> None:
    from quorate.backup.spark.classic_driver import ClassicDriver
    from quorate.backup.spark.driver_jvm import DriverJvm

    with tempfile.TemporaryDirectory(prefix="quorate-spark-") as name:
        folder = Path(name)
        conf = spark_conf(
            SparkSettings(master="local[1]"), archive.recording_options(), folder=folder, package_zip=None
        )
        jvm = DriverJvm(folder)
        try:
            driver = ClassicDriver(jvm.start(conf, "quorate class recording"))
            driver.run(_nothing, [b""] * _TASKS, _Nobody())
            if jvm.stop(timeout_s) == 0:
                archive.keep()
        finally:
            jvm.kill()
            archive.discard()


def _nothing(task: bytes, report: Report = ignore, /) -> Outcome:  # noqa: ARG001 - as every kind of work
    return Outcome(task, 0, 0)


class _Nobody:
    def tasks_finished(self, finished: object, finished_count: int) -> None: ...

    def tasks_advanced(self, advanced: object) -> None: ...

    def phase(self, name: str) -> None: ...


if __name__ == "__main__":
    main()
