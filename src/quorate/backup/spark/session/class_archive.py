"""Spark's loaded classes, kept between runs, so that the JVM starts in half the time (application class data sharing).

A run maps the archive where there is one. The first that finds none starts this module in the background when its own
work is done: a small job on a JVM of its own, which writes the archive at its end. That takes up to minutes, for which
nobody waits, at the lowest priority. It is tried once, and again only after a week. Where the cache cannot be written,
runs start slowly and say nothing. Does I/O.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import quorate
from quorate.backup.spark.session.launching import cache_folder
from quorate.backup.spark.session.settings import QUICK_START_JVM_OPTIONS, SparkSettings, find_java, spark_conf
from quorate.backup.spark.session.tasks import Outcome, Report, ignore

_QUIET = ["-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
_TRIED_AGAIN_AFTER_S = 7 * 24 * 3600
_RECORDING = (sys.executable, "-m", "quorate.backup.spark.session.class_archive")
_PRIORITY = 19
_WRITING_TIMEOUT_S = 900
_TASKS = 2


class ClassArchive:
    """One file, named by everything that its content depends on."""

    def __init__(self, folder: Path, ingredients: list[str]) -> None:
        digest = hashlib.sha256("\n".join(ingredients).encode()).hexdigest()[:16]
        self.path = folder / f"spark-classes-{digest}.jsa"
        self._draft = self.path.with_suffix(".draft")
        self._attempt = self.path.with_suffix(".attempt")

    def jvm_options(self) -> list[str]:
        """Options that use the archive, where there is one."""
        return [f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto", *_QUIET] if self.path.is_file() else []

    def recording_options(self) -> list[str]:
        """Options with which a JVM writes the archive at its end."""
        return [f"-XX:ArchiveClassesAtExit={self._draft}", *_QUIET]

    def begin_attempt(self) -> bool:
        """Whether the caller is the one to record it: nobody else tries at the same time, or soon after."""
        if self.path.is_file():
            return False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if time.time() - self._attempt.stat().st_mtime > _TRIED_AGAIN_AFTER_S:
                self._attempt.unlink()
        except FileNotFoundError:
            pass
        except OSError:
            return False
        try:
            self._attempt.open("x").close()
        except OSError:
            return False
        return True

    def keep(self) -> None:
        """Call when the JVM that recorded it has ended in good order."""
        with suppress(OSError):
            self._draft.replace(self.path)
            self._attempt.unlink(missing_ok=True)

    def discard(self) -> None:
        with suppress(OSError):
            self._draft.unlink(missing_ok=True)


def class_archive(java: Path, environment: Mapping[str, str]) -> ClassArchive:
    import pyspark

    home = Path(pyspark.__file__).parent
    ingredients = [str(java.resolve()), pyspark.__version__, str(home), *QUICK_START_JVM_OPTIONS]
    with suppress(OSError):
        ingredients.append((java.resolve().parent.parent / "release").read_text())
    return ClassArchive(cache_folder(environment), ingredients)


def record_in_background(command: Sequence[str] = _RECORDING) -> None:
    """A process that outlives this one, and its terminal. It has no output and ends by itself."""
    nowhere = subprocess.DEVNULL
    paths = [str(Path(quorate.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    with suppress(OSError):
        process = subprocess.Popen(
            command, stdin=nowhere, stdout=nowhere, stderr=nowhere, env=environment, cwd="/", start_new_session=True
        )
        process.returncode = 0  # Nobody waits for it: without this, its object would complain when it goes.


def main() -> None:
    os.nice(_PRIORITY)
    record(class_archive(find_java(os.environ), os.environ))


def record(archive: ClassArchive, timeout_s: int = _WRITING_TIMEOUT_S) -> None:
    from quorate.backup.spark.session.classic_driver import ClassicDriver
    from quorate.backup.spark.session.driver_jvm import DriverJvm
    from quorate.backup.spark.session.jvm_process import JvmProcess

    with tempfile.TemporaryDirectory(prefix="quorate-spark-") as name:
        folder = Path(name)
        conf = spark_conf(
            SparkSettings(master="local[1]"), archive.recording_options(), folder=folder, package_zip=None
        )
        process = JvmProcess(folder)
        jvm = DriverJvm(process)
        try:
            process.start(conf)
            driver = ClassicDriver(jvm.open(conf, "quorate class recording"))
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
