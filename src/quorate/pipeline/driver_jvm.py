"""The JVM of a session on a local master or a cluster: started with its log in a file, and always ended. Does I/O."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from quorate.kernel.errors import QuorateError


class DriverJvm:
    """The driver's JVM. It ends when its standard input does, so also when this process is killed."""

    def __init__(self, log_path: Path) -> None:
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._session: SparkSession | None = None

    def start(self, conf: dict[str, str], name: str) -> SparkSession:
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
            raise QuorateError(f"Spark did not start: {self._last_error() or first_line(error)}") from None
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


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
