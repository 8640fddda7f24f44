"""The session on a JVM of its own, for a local master or a cluster: opened when it answers, and closed. Does I/O."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from py4j import protocol
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from quorate.backup.spark.session.jvm_process import GatewayAddress, JvmProcess
from quorate.kernel.errors import QuorateError

# By these PySpark finds a JVM that runs already.
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


class DriverJvm:
    def __init__(self, process: JvmProcess) -> None:
        self._process = process
        self._session: SparkSession | None = None

    def open(self, conf: Mapping[str, str], name: str) -> SparkSession:
        spark_config = SparkConf(loadDefaults=False).setAppName(name).setAll(list(conf.items()))
        try:
            gateway = _connect(self._process.gateway(), spark_config)
            with _kept_interrupt_handler():
                context = SparkContext(conf=spark_config, gateway=gateway)
            _silence_accumulators(context)
            self._session = SparkSession(context)
        except (PySparkException, Py4JError) as error:
            raise QuorateError(f"Spark did not start: {self._process.last_error() or first_line(error)}") from None
        return self._session

    def stop(self, timeout_s: int) -> int | None:
        """The exit status of the JVM; None where it was never there, or had to be killed."""
        if self._session is not None:
            self._session.stop()
        _forget_session()
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """Whatever it is at."""
        self._process.kill()
        _forget_session()


def _connect(address: GatewayAddress, conf: SparkConf) -> Any:
    _leave_out_numpy()
    os.environ |= {_PORT: str(address.port), _SECRET: address.secret}
    try:
        return launch_gateway(conf)  # type: ignore[no-untyped-call]
    finally:
        for variable in (_PORT, _SECRET):
            os.environ.pop(variable, None)


def _leave_out_numpy() -> None:
    """Each text that is sent to the JVM is first looked at whether it is an array of numpy's; none ever is.

    To know that, pyspark loads pandas and what else it finds, which takes longer than all its own modules.
    """
    kept = [each for each in protocol.INPUT_CONVERTER if not type(each).__name__.startswith("Numpy")]
    protocol.INPUT_CONVERTER[:] = kept


def _forget_session() -> None:
    """What pyspark keeps for the whole process: the next session would find it, and call a JVM that is gone."""
    with contextlib.suppress(Exception):
        sessions: Any = SparkSession
        sessions._instantiatedSession = sessions._activeSession = None
        SparkContext._active_spark_context = None
        gateway: Any = SparkContext._gateway
        SparkContext._gateway = SparkContext._jvm = None
        if gateway is not None:
            gateway.shutdown()


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
