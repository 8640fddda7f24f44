"""One node of a local cluster as a child process, forked from this one so that all share what was imported once."""

import gc
import logging
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from quorate.kernel.errors import QuorateError

_STOP_TIMEOUT_S = 15
_POLL_S = 0.01
#: What a child says in place of being ready, and why.
_FAILED = "failed: "


class Lifeline:
    """A pipe that nobody writes to. Its other end closes when this process ends, however it ends."""

    def __init__(self) -> None:
        self.for_children, self._held = os.pipe()

    def let_go(self) -> None:
        """In a child: only the parent's end counts."""
        os.close(self._held)

    def close(self) -> None:
        os.close(self.for_children)
        os.close(self._held)


def load_the_broker() -> None:
    """Import before the first fork what every node needs. There must be no threads yet."""
    import quorate.broker.process
    import quorate.cli.serve  # noqa: F401

    with suppress(ImportError):
        import uvloop  # noqa: F401
    gc.freeze()  # What is shared stays shared: the collector of a child need not touch it.


class NodeProcess:
    """A node that runs ``quorate serve`` on its file; what it logs goes to ``log_path``."""

    def __init__(self, node_id: int, config_path: Path, log_path: Path, lifeline: Lifeline) -> None:
        self.node_id = node_id
        self._log_path = log_path
        self._status: int | None = None
        read_end, write_end = os.pipe()
        self._output = os.fdopen(read_end)
        self.pid = os.fork()
        if self.pid == 0:
            _become_node(config_path, log_path, lifeline, write_end)
        os.close(write_end)

    def wait_until_ready(self) -> None:
        line = self._output.readline()
        if not line.startswith("ready: "):
            self.stop()
            why = line.removeprefix(_FAILED).strip() if line.startswith(_FAILED) else self._last_log_line()
            raise QuorateError(f"node {self.node_id} did not start: {why}")

    @property
    def is_running(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status is None

    def ask_to_stop(self) -> None:
        if self.is_running:
            os.kill(self.pid, signal.SIGTERM)

    def stop(self) -> None:
        self.ask_to_stop()
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while self.is_running:
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(_POLL_S)
        self._output.close()

    def _last_log_line(self) -> str:
        lines = self._log_path.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it ended with status {self._status}"


def _become_node(config_path: Path, log_path: Path, lifeline: Lifeline, output: int) -> NoReturn:
    """The child's whole life. It never returns into the code that called it."""
    status = 1
    try:
        os.setsid()  # Ctrl-C reaches the parent alone, which stops its nodes in good order.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        lifeline.let_go()
        for source, target in ((lifeline.for_children, 0), (output, 1), (log, 2)):
            os.dup2(source, target)
            os.close(source)
        from quorate.cli.serve import serve

        serve(config_path, until_stdin_closes=True)
        status = 0
    except QuorateError as error:
        with suppress(OSError):  # The parent may be gone.
            print(f"{_FAILED}{error}", flush=True)
        logging.getLogger(__name__).critical("node ended error=%s", error)
    except BaseException as error:
        logging.getLogger(__name__).critical("node ended error=%s", error, exc_info=True)
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
