"""One child process that a test starts, signals and outlives, with its output in a file.

The child is told to die with the thread that started it, so that an interrupted run leaves nothing behind; start
children from the main thread. Only this very process is ever signalled, by its pid.
"""

import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from quorate.testing.cluster_in_process import free_ports, is_free_port
from tests.eventually import eventually


class ChildProcess:
    def __init__(self, command: Sequence[str], output: Path) -> None:
        self._output = output
        self._written_before = output.stat().st_size if output.exists() else 0
        with output.open("ab") as sink:
            self._popen = subprocess.Popen(
                [*_dying_with_parent(), *command], stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def output(self) -> str:
        """What this run has printed so far; what earlier runs left in the file is not part of it."""
        return self._output.read_bytes()[self._written_before :].decode(errors="replace")

    def wait_for_output(self, found: Callable[[str], str | None], what: str, within_s: float) -> str:
        """Poll the output until ``found`` sees what it looks for. A child that ends first fails the test."""

        def look() -> str | None:
            ended = not self.running
            outcome = found(self.output())
            if outcome is None and ended:
                raise AssertionError(f"the process ended before {what}:\n{self.output()[-4000:]}")
            return outcome

        return eventually(look, what, within_s)

    def send_signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def kill(self) -> None:
        """End it as a crash does, and wait until it is gone."""
        self._popen.kill()
        self._popen.wait()

    def wait(self, within_s: float) -> int:
        """Until it ends by itself; its exit status."""
        return self._popen.wait(within_s)

    def stop(self, within_s: float = 30) -> int:
        """Ask it to end, insist after the deadline, and return its exit status."""
        self._popen.terminate()
        try:
            return self._popen.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._popen.returncode


def free_port() -> int:
    """A loopback port that nothing listens on, and that nobody else is given."""
    return free_ports(1)[0]


def free_ports_in_a_row(count: int) -> int:
    """The first of them: for ``quorate up``, whose nodes have one after the other."""
    first = free_port()
    while not all(is_free_port(first + number) for number in range(1, count)):
        first = free_port()
    return first


def _dying_with_parent() -> list[str]:
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
