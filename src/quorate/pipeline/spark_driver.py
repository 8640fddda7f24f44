"""A Spark session: started quickly, used for jobs, stopped with nothing left behind. Does I/O.

The same jobs run on a local master, on a cluster and on a Spark Connect server. The first two have a JVM of their own,
whose log goes to a file; it is shown only where Spark itself fails.
"""

import contextlib
import logging
import os
import socket
import subprocess
import sys
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from quorate.kernel.errors import QuorateError
from quorate.pipeline.class_archive import ClassArchive, cache_folder
from quorate.pipeline.java import find_java
from quorate.pipeline.package_zip import write_package_zip
from quorate.pipeline.spark_settings import QUICK_START_JVM_OPTIONS, SparkSettings, spark_conf
from quorate.pipeline.task_runner import FinishedTask, Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JVM_EXIT_TIMEOUT_S = 5
_RECORDING_TIMEOUT_S = 60
_CONNECT_PORT = 15002
_CONNECT_TIMEOUT_S = 10


class JobWatcher(Protocol):
    """Is told several times a second how far a job has come."""

    def tasks_finished(self, finished: Sequence[FinishedTask], finished_count: int) -> None:
        """``finished`` has those that are new, where the session can tell them; ``finished_count`` counts all."""
        ...


class SparkDriver(Protocol):
    def run(self, work: Work, tasks: Sequence[bytes], watcher: JobWatcher) -> list[bytes]:
        """Every task's result. When interrupted, the job is cancelled before the interrupt goes on."""
        ...

    def slots(self) -> int:
        """How many tasks run at once."""
        ...


@contextlib.contextmanager
def open_spark(settings: SparkSettings, name: str, say: Callable[[str], None]) -> Iterator[SparkDriver]:
    """A session inside the block. ``say`` tells the user of what takes a while."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise QuorateError("this needs Spark: pip install 'quorate[backup]'") from None
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # It reports every connection that a stopping JVM closes.
    warnings.filterwarnings("ignore", module=r"pyspark\.")  # On pandas, which is not used, and on type hints of UDFs.
    with tempfile.TemporaryDirectory(prefix="quorate-spark-") as folder:
        if settings.remote is not None:
            opened = _connect(settings, settings.remote, Path(folder))
        else:
            opened = _launch(settings, name, Path(folder), say)
        with opened as driver:
            yield driver


@contextlib.contextmanager
def _launch(settings: SparkSettings, name: str, folder: Path, say: Callable[[str], None]) -> Iterator[SparkDriver]:
    from quorate.pipeline.classic_driver import ClassicDriver

    archive = _class_archive(find_java(os.environ))
    package_zip = None if settings.is_local else write_package_zip(folder)
    conf = spark_conf(settings, archive.jvm_options(), package_zip)
    jvm = _Jvm(folder / "spark.log")
    try:
        session = jvm.start(conf, name)
        yield ClassicDriver(session)
    except BaseException:
        jvm.kill()
        archive.discard()
        raise
    if archive.is_recording:
        say("keeping Spark's loaded classes, so that it starts in half the time from now on")
        jvm.stop(_RECORDING_TIMEOUT_S)
        archive.keep_recorded()
    else:
        jvm.stop(_JVM_EXIT_TIMEOUT_S)


@contextlib.contextmanager
def _connect(settings: SparkSettings, remote: str, folder: Path) -> Iterator[SparkDriver]:
    try:
        from pyspark.sql.connect import session as _needed  # noqa: F401 - names the package that is missing

        from quorate.pipeline.connect_driver import ConnectDriver
    except ImportError as error:
        raise QuorateError(f"--remote needs Spark Connect: pip install 'quorate[connect]' ({error})") from None
    from pyspark.sql import SparkSession

    try:
        _check_listening(remote)
        session: Any = SparkSession.builder.remote(remote).create()
        for key, value in settings.conf.items():
            session.conf.set(key, value)
        session.addArtifacts(str(write_package_zip(folder)), pyfile=True)
    except Exception as error:
        raise QuorateError(f"no Spark Connect session with {remote}: {_first_line(error)}") from None
    try:
        yield ConnectDriver(session)
    finally:
        with contextlib.suppress(Exception):
            session.stop()
        # Set by the session, and taken by every later one in this process for "on Connect".
        for variable in ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"):
            os.environ.pop(variable, None)


def _check_listening(remote: str) -> None:
    """The session itself would try for ten minutes."""
    address = urlsplit(remote)
    host, port = address.hostname or "", address.port or _CONNECT_PORT
    socket.create_connection((host, port), _CONNECT_TIMEOUT_S).close()


class _Jvm:
    """The driver's JVM. It ends when its standard input does, so also when this process is killed."""

    def __init__(self, log_path: Path) -> None:
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._session: SparkSession | None = None

    def start(self, conf: dict[str, str], name: str) -> "SparkSession":
        from py4j.protocol import Py4JError
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkException
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        spark_config = SparkConf(loadDefaults=False).setAppName(name).setAll(list(conf.items()))
        try:
            with self._log_path.open("wb") as log:
                gateway: Any = launch_gateway(spark_config, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
            self._process = gateway.proc
            context = SparkContext(conf=spark_config, gateway=gateway)
            _silence_accumulators(context)
            self._session = SparkSession(context)
        except (PySparkException, Py4JError) as error:
            raise QuorateError(f"Spark did not start: {self._last_error() or _first_line(error)}") from None
        return self._session

    def stop(self, timeout_s: int) -> None:
        if self._session is not None:
            self._session.stop()
        self._close_gateway()
        if self._process is not None:
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """For when nothing can be expected of it. Python workers see their sockets close, and end."""
        self._close_gateway()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _close_gateway(self) -> None:
        from pyspark import SparkContext

        with contextlib.suppress(Exception):
            SparkContext._active_spark_context = None
            gateway: Any = SparkContext._gateway
            SparkContext._gateway = SparkContext._jvm = None
            if gateway is not None:
                gateway.shutdown()
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def _last_error(self) -> str | None:
        lines = self._log_path.read_text(errors="replace").splitlines() if self._log_path.exists() else []
        errors = [line for line in lines if "Exception: " in line or "ERROR" in line or "Error: " in line]
        return errors[-1].strip() if errors else None


def _silence_accumulators(context: Any) -> None:
    """Their server prints a traceback when the JVM is killed, as it is after Ctrl-C; progress is all they carry."""
    context._accumulatorServer.handle_error = lambda *_: None


def _class_archive(java: Path) -> ClassArchive:
    import pyspark

    home = Path(pyspark.__file__).parent
    ingredients = [str(java.resolve()), pyspark.__version__, str(home), *QUICK_START_JVM_OPTIONS]
    with contextlib.suppress(OSError):
        ingredients.append((java.resolve().parent.parent / "release").read_text())
    return ClassArchive(cache_folder(os.environ), ingredients)


def new_group_id() -> str:
    return f"quorate-{uuid.uuid4().hex}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
