"""The JVM of a session on a local master or a cluster: started with its log in a file, and always ended. Does I/O."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int
from pyspark.sql import SparkSession

from quorate.kernel.errors import QuorateError

_POLL_S = 0.05
# By these PySpark finds a JVM that runs already.
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class DriverJvm:
    """The driver's JVM, in a session of its own: no Ctrl-C of the terminal reaches it, ``kill`` reaches all of it.

    PySpark's own launcher loses a JVM when it is interrupted before the JVM has answered. Here the process is known
    from the moment it is there. Where this process is killed, the JVM sees its standard input end, and ends.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log_path = folder / "spark.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._session: SparkSession | None = None

    def start(self, conf: dict[str, str], name: str) -> SparkSession:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        spark_config = SparkConf(loadDefaults=False).setAppName(name).setAll(list(conf.items()))
        try:
            gateway = self._launch(spark_config)
            with _kept_interrupt_handler():
                context = SparkContext(conf=spark_config, gateway=gateway)
            _silence_accumulators(context)
            self._session = SparkSession(context)
        except (PySparkException, Py4JError) as error:
            raise QuorateError(f"Spark did not start: {self._last_error() or first_line(error)}") from None
        return self._session

    def stop(self, timeout_s: int) -> int | None:
        """Its exit status; None where it was never there, or had to be killed."""
        if self._session is not None:
            self._session.stop()
        self._close_gateway()
        if self._process is None:
            return None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def kill(self) -> None:
        """For when nothing can be expected of it. Python workers see their sockets close, and end."""
        with uninterrupted():
            if self._process is not None and self._process.poll() is None:
                # Its group: while Spark's scripts are still at work, Java is a child of theirs.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self._close_gateway()

    def _launch(self, conf: SparkConf) -> Any:
        answer = self._folder / "gateway"
        command = [str(Path(_find_spark_home()) / "bin" / "spark-submit")]
        for key, value in conf.getAll():
            command += ["--conf", f"{key}={value}"]
        command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        environment = os.environ | {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer)}
        with uninterrupted(), self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        while not answer.is_file():
            if self._process.poll() is not None:
                raise QuorateError(f"Spark did not start: {self._last_error() or 'its JVM ended at once'}")
            time.sleep(_POLL_S)
        with answer.open("rb") as info:
            port, secret = read_int(info), UTF8Deserializer().loads(info)  # type: ignore[no-untyped-call]
        os.environ |= {_PORT: str(port), _SECRET: secret}
        try:
            return launch_gateway(conf)  # type: ignore[no-untyped-call]
        finally:
            for variable in (_PORT, _SECRET):
                os.environ.pop(variable, None)

    def _close_gateway(self) -> None:
        with contextlib.suppress(Exception):
            SparkContext._active_spark_context = None
            gateway: Any = SparkContext._gateway
            SparkContext._gateway = SparkContext._jvm = None
            if gateway is not None:
                gateway.shutdown()
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def _last_error(self) -> str | None:
        lines = self._log_path.read_text(errors="replace").splitlines() if self._log_path.exists() else []
        errors = [line for line in lines if "Exception: " in line or "ERROR" in line or "Error: " in line]
        return errors[-1].strip() if errors else None


@contextlib.contextmanager
def _kept_interrupt_handler() -> Iterator[None]:
    """A context puts its own in place. That one calls the JVM first, and fails where a call is under way already."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGINT, handler)


def _silence_accumulators(context: Any) -> None:
    """Their server prints a traceback when the JVM is killed, as it is after Ctrl-C; progress is all they carry."""
    context._accumulatorServer.handle_error = lambda *_: None


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals reach only the main thread; in any other one there is nothing to hold back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handled = [number for number in _STOPPING if callable(signal.getsignal(number))]
    previous = {number: signal.signal(number, lambda number, _: came.append(number)) for number in handled}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for number in came[:1]:
            signal.raise_signal(number)
