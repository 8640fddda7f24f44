"""The process of a session's JVM: started with its log in a file, and always ended. Does I/O.

Nothing of pyspark is needed for it, so it starts while that is being loaded.
"""

import contextlib
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from quorate.backup.spark.session.launching import Launch, cache_folder, forget, launch, scripts
from quorate.backup.spark.session.settings import find_java
from quorate.kernel.errors import QuorateError

_POLL_S = 0.005
_STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_NUMBER = struct.Struct(">i")


class GatewayAddress(NamedTuple):
    """How py4j reaches it, on loopback."""

    port: int
    secret: str


class JvmProcess:
    """The driver's JVM, in a session of its own: no Ctrl-C of the terminal reaches it, ``kill`` reaches all of it.

    PySpark's own launcher loses a JVM when it is interrupted before the JVM has answered. Here the process is known
    from the moment it is there. Where this process is killed, the JVM sees its standard input end, and ends.
    """

    def __init__(self, folder: Path, note: Callable[[int], None] = lambda _: None) -> None:
        """``note`` is told the pid of the process as soon as there is one."""
        self._log_path = folder / "spark.log"
        self._answer = folder / "gateway"
        self._note = note
        self._process: subprocess.Popen[bytes] | None = None
        self._conf: Mapping[str, str] = {}
        self._was_remembered = False

    def start(self, conf: Mapping[str, str]) -> None:
        self._conf = conf
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        self._start(launch(_spark_home(), find_java(os.environ), conf, os.environ, cache_folder(os.environ)))

    def gateway(self) -> GatewayAddress:
        """Waits for it."""
        assert self._process is not None
        while not self._answer.is_file():
            if self._process.poll() is not None:
                self._try_the_scripts()
            time.sleep(_POLL_S)
        content = self._answer.read_bytes()
        (port,), (length,) = _NUMBER.unpack_from(content), _NUMBER.unpack_from(content, _NUMBER.size)
        return GatewayAddress(port, content[2 * _NUMBER.size :][:length].decode())

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self, timeout_s: int) -> int | None:
        """Let go of it, and see it end: its exit status; None where it was never there, or had to be killed."""
        if self._process is None:
            return None
        self._let_go()
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
            self._let_go()

    def last_error(self) -> str | None:
        lines = self._log_path.read_text(errors="replace").splitlines() if self._log_path.exists() else []
        errors = [line for line in lines if "Exception: " in line or "ERROR" in line or "Error: " in line]
        return errors[-1].strip() if errors else None

    def _start(self, how: Launch) -> None:
        own = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._answer)}
        self._was_remembered = how.is_remembered
        with uninterrupted(), self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                how.command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=how.environment | own,
                start_new_session=True,
            )
        self._note(self._process.pid)

    def _try_the_scripts(self) -> None:
        if not self._was_remembered:
            raise QuorateError(f"Spark did not start: {self.last_error() or 'its JVM ended at once'}")
        self._let_go()
        home = _spark_home()
        forget(home, find_java(os.environ), cache_folder(os.environ))
        self._start(scripts(home, self._conf, os.environ))

    def _let_go(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


def _spark_home() -> Path:
    """As pyspark finds it, without loading pyspark."""
    named = os.environ.get("SPARK_HOME")
    if named is not None:
        return Path(named)
    found = find_spec("pyspark")
    assert found is not None, "whoever starts a session has looked for pyspark"
    assert found.origin is not None, "it is a package with code"
    package = Path(found.origin).parent
    distribution = package / "spark-distribution"
    return distribution if distribution.is_dir() else package


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
