"""Opens a Spark session: on a local master, on a cluster, or on a Spark Connect server. Does I/O.

The same jobs run on all three. The first two have a JVM of their own, whose log goes to a file; it is shown only where
Spark itself fails.
"""

import contextlib
import logging
import os
import socket
import tempfile
import threading
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import quorate
from quorate.backup.spark.session.class_archive import class_archive, record_in_background
from quorate.backup.spark.session.job import JobWatcher, OpenedSpark, QueryWatcher, Result, SparkJob
from quorate.backup.spark.session.jvm_process import JvmProcess
from quorate.backup.spark.session.settings import SparkSettings, find_java, spark_conf
from quorate.backup.spark.session.tasks import TaskRunner, Work, collect_results
from quorate.kernel import native
from quorate.kernel.errors import QuorateError

_JVM_EXIT_TIMEOUT_S = 5
_STANDALONE = "spark://"
_CONNECT_PORT = 15002
_CONNECT_TIMEOUT_S = 10
_ROWS_TO_SPREAD = 4096


@contextlib.contextmanager
def open_spark(settings: SparkSettings, name: str, say: Callable[[str], None]) -> Iterator[OpenedSpark]:
    """A session inside the block. ``say`` tells the user of what takes a while."""
    if find_spec("pyspark") is None:
        raise QuorateError("this needs Spark: pip install 'quorate[backup]'")
    say(f"kernel: {native.choice}")
    if settings.keep_warm_s is not None and not settings.is_local:
        say("Spark is kept warm on this machine alone: keep_warm counts for nothing here")
    if settings.keep_warm_s is not None and settings.is_local:
        opened = _share(settings, settings.keep_warm_s, name, say)
    else:
        opened = _open_own(settings, name, say)
    with opened as driver:
        yield driver


@contextlib.contextmanager
def _share(settings: SparkSettings, keep_warm_s: float, name: str, say: Callable[[str], None]) -> Iterator[OpenedSpark]:
    """A warm Spark, and one of the command's own where there is none. Of pyspark nothing is loaded for the first."""
    from quorate.backup.spark.warm.command import NoWarmSpark, WarmSpark, connect

    with contextlib.ExitStack() as stack:

        def start_own() -> OpenedSpark:
            return stack.enter_context(_open_own(settings, name, say))

        try:
            channel = connect(settings, keep_warm_s, say)
        except NoWarmSpark as error:
            say(f"there is no warm Spark ({error}); this command starts one of its own")
            yield start_own()
        else:
            warm = WarmSpark(channel, start_own, say)
            stack.callback(warm.close)
            yield warm


@contextlib.contextmanager
def _open_own(settings: SparkSettings, name: str, say: Callable[[str], None]) -> Iterator[OpenedSpark]:
    _silence_py4j()
    warnings.filterwarnings("ignore", module=r"pyspark\.")  # On pandas, which is not used, and on type hints of UDFs.
    with tempfile.TemporaryDirectory(prefix="quorate-spark-") as folder:
        if settings.remote is not None:
            opened = _connect(settings, settings.remote, Path(folder))
        else:
            opened = _launch(settings, name, Path(folder), say)
        with opened as driver:
            yield driver


def _silence_py4j() -> None:
    """It reports every connection that a stopping JVM closes, and every call that a stop interrupts, with tracebacks.

    Some of that goes to its own logger, some to the root logger.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)  # A filter of a logger sees only what is logged on that very one.


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


@contextlib.contextmanager
def _launch(settings: SparkSettings, name: str, folder: Path, say: Callable[[str], None]) -> Iterator[OpenedSpark]:
    _check_master(settings.master)
    archive = class_archive(find_java(os.environ), os.environ) if settings.keeps_classes else None
    package_zip = None if settings.is_local else write_package_zip(folder)
    conf = spark_conf(settings, archive.jvm_options() if archive else [], folder=folder, package_zip=package_zip)
    process = JvmProcess(folder)
    try:
        process.start(conf)
        # Loaded while the JVM starts.
        from quorate.backup.spark.session.classic_driver import ClassicDriver
        from quorate.backup.spark.session.driver_jvm import DriverJvm

        jvm = DriverJvm(process)
        try:
            yield ClassicDriver(jvm.open(conf, name), say)
            if not settings.is_local:
                jvm.stop(_JVM_EXIT_TIMEOUT_S)  # On a cluster others wait for its goodbye.
        finally:
            jvm.kill()
    finally:
        process.kill()  # Whatever is left of it: after an interrupt, all.
    if archive is not None and archive.begin_attempt():
        say("Spark's classes are being kept in the background, once, so that it starts in half the time from now on")
        record_in_background()


@contextlib.contextmanager
def _connect(settings: SparkSettings, remote: str, folder: Path) -> Iterator[OpenedSpark]:
    try:
        from pyspark.sql.connect import session as _needed  # noqa: F401 - names the package that is missing
    except ImportError as error:
        raise QuorateError(f"--remote needs Spark Connect: pip install 'quorate[connect]' ({error})") from None
    from pyspark.sql import SparkSession

    from quorate.backup.spark.session.driver_jvm import first_line

    try:
        _check_listening(remote)
        session: Any = SparkSession.builder.remote(remote).create()
        for key, value in settings.conf.items():
            session.conf.set(key, value)
        session.addArtifacts(str(write_package_zip(folder)), pyfile=True)
    except Exception as error:
        raise QuorateError(f"no Spark Connect session with {remote}: {first_line(error)}") from None
    try:
        yield ConnectDriver(session)
    finally:
        with contextlib.suppress(Exception):
            session.stop()
        # Set by the session, and taken by every later one in this process for "on Connect".
        for variable in ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"):
            os.environ.pop(variable, None)


def _check_master(master: str) -> None:
    """A standalone master; the session itself would try for a minute, and say nothing."""
    if not master.startswith(_STANDALONE):
        return
    failures = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S).close()
        except (OSError, ValueError, OverflowError) as error:
            failures.append(f"{address}: {error}")
        else:
            return
    raise QuorateError(f"no Spark master answers at {master}: {'; '.join(failures)}")


def _check_listening(remote: str) -> None:
    """The session itself would try for ten minutes."""
    address = urlsplit(remote)
    host, port = address.hostname or "", address.port or _CONNECT_PORT
    socket.create_connection((host, port), _CONNECT_TIMEOUT_S).close()


def write_package_zip(folder: Path) -> Path:
    """The package as one zip, which a Python worker on another machine can put on its path.

    The native module is in it, too, where this process uses it; where it does not fit that machine, it is not used.
    """
    target = folder / "quorate.zip"
    package = Path(quorate.__file__).parent
    module = package.glob(native.FILE) if native.native is not None else ()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in sorted((*package.rglob("*.py"), *module)):
            archive.write(source, source.relative_to(package.parent))
    return target


class ConnectDriver:
    """Runs jobs on a Spark Connect server."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def slots(self) -> int:
        """The server's default parallelism: into how many partitions it puts rows when nobody says."""
        from pyspark.sql.functions import spark_partition_id

        return int(self._session.range(0, _ROWS_TO_SPREAD).select(spark_partition_id()).distinct().count())

    def run(self, work: Work, tasks: Sequence[bytes], watcher: JobWatcher) -> list[bytes]:
        runner, progress = TaskRunner(work, tasks, None, None), _Progress(len(tasks))
        return self._run(
            lambda: collect_results(self._session, runner, len(tasks)),
            progress,
            lambda: watcher.tasks_finished([], progress.finished_count),
        )

    def query(self, action: Callable[[Any], Result], watcher: QueryWatcher) -> Result:
        progress = _Progress()
        return self._run(
            lambda: action(self._session),
            progress,
            lambda: watcher.tasks_counted(progress.finished_count, progress.task_count),
        )

    def _run(self, action: Callable[[], Result], progress: "_Progress", look: Callable[[], None]) -> Result:
        session = self._session
        job = SparkJob(action, mark=session.addTag, cancel=session.interruptTag)
        session.registerProgressHandler(progress.note)
        try:
            threading.Thread(target=job.run, daemon=True).start()
            return job.watch(look)
        finally:
            session.removeProgressHandler(progress.note)


class _Progress:
    """The server tells how many tasks are done, but not which."""

    def __init__(self, task_count: int | None = None) -> None:
        self._is_planned = task_count is not None
        self.task_count = task_count or 0
        self.finished_count = 0

    def note(self, stages: Any, **_: Any) -> None:
        finished = sum(stage.num_completed_tasks for stage in stages or ())
        if not self._is_planned:
            self.task_count = max(self.task_count, sum(stage.num_tasks for stage in stages or ()))
        # A task that was tried again is counted twice.
        self.finished_count = min(self.task_count, max(self.finished_count, finished))
