"""Commands that are stopped while Spark starts, or before it: nothing is left running, and nobody sees a traceback."""

import os
import pty
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tests.backup_commands import QUORATE, Backups, create_topics, produce
from tests.eventually import eventually
from tests.peers.quorate_node import QuorateNode

pytest.importorskip("pyspark")

TOPIC = "orders"
# From the first moment of Spark's scripts to its first job; no outcome depends on where exactly a signal comes.
SPARK_DELAYS_S = [0.0, 0.3, 0.6, 1.0, 1.6, 2.3, 3.0]
FIRST_DELAYS_S = [0.03, 0.08, 0.15, 0.25, 0.4, 0.6]
STOPPED = 130
# The one batch of the topic takes minutes: however fast the machine is, no run has ended before its signal comes.
SLOW = {"rate_limit_bytes_per_second": 100}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        create_topics(node.bootstrap, NewTopic(TOPIC, 1))
        produce(node.bootstrap, TOPIC, 100)
        yield node


class Marked:
    """A command whose descendants can be found wherever they have gone: all have inherited one variable."""

    def __init__(self, backups: Backups, stderr: int = subprocess.PIPE) -> None:
        self._mark = f"QUORATE_TEST_MARK={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        # A process inherits what is ignored: under nohup, these tests themselves ignore it.
        previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        self.process = subprocess.Popen(
            [str(QUORATE), "backup", "--config", str(backups.write_config(backup=SLOW))],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=os.environ | {name: value},
            start_new_session=True,
        )
        signal.signal(signal.SIGHUP, previous)

    def wait_for(self, text: str) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if text in line.decode():
                return
        raise AssertionError(f"it ended without {text!r}")

    def alive(self) -> list[str]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                is_zombie = (folder / "stat").read_text().rpartition(") ")[2][0] == "Z"
                if self._mark.encode() in (folder / "environ").read_bytes() and not is_zombie:
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found

    def assert_nothing_is_left(self) -> None:
        eventually(lambda: not self.alive(), "everything that the command has started to end", within_s=20)


@pytest.mark.parametrize(
    ("delay_s", "number"),
    [
        *((delay_s, signal.SIGINT) for delay_s in SPARK_DELAYS_S),
        # One handler for all signals: two moments will do.
        *((delay_s, number) for delay_s in (0.0, 1.0) for number in (signal.SIGTERM, signal.SIGHUP)),
    ],
)
def test_stop_while_spark_starts_leaves_no_jvm_behind(
    node: QuorateNode, tmp_path: Path, delay_s: float, number: signal.Signals
) -> None:
    command = Marked(Backups(tmp_path, node.bootstrap))
    command.wait_for("starting Spark")
    time.sleep(delay_s)

    command.process.send_signal(number)
    _, errors = command.process.communicate(timeout=60)

    assert command.process.returncode == STOPPED, errors
    assert b"Traceback" not in errors
    assert b"quorate: stopped" in errors
    command.assert_nothing_is_left()


def test_two_stops_in_a_row_leave_no_jvm_behind(node: QuorateNode, tmp_path: Path) -> None:
    command = Marked(Backups(tmp_path, node.bootstrap))
    command.wait_for("starting Spark")
    time.sleep(1)

    for _ in range(5):
        with suppress(ProcessLookupError):
            command.process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    _, errors = command.process.communicate(timeout=60)

    # One that comes when Python itself is ending has its default meaning; a shell shows the same status for both.
    assert command.process.returncode in (STOPPED, -signal.SIGINT), errors
    assert b"Traceback" not in errors
    command.assert_nothing_is_left()


def test_command_that_is_killed_leaves_no_jvm_behind(node: QuorateNode, tmp_path: Path) -> None:
    for delay_s in (0.3, 1.5):
        command = Marked(Backups(tmp_path, node.bootstrap))
        command.wait_for("starting Spark")
        time.sleep(delay_s)
        command.process.kill()
        command.process.communicate()
        command.assert_nothing_is_left()


def test_terminal_that_is_closed_leaves_no_jvm_behind(node: QuorateNode, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = Marked(Backups(tmp_path, node.bootstrap), stderr=theirs)
    os.close(theirs)
    seen = b""
    while b"starting Spark" not in seen:
        seen += os.read(ours, 4096)

    os.close(ours)  # From now on every line that it writes fails.
    command.process.send_signal(signal.SIGHUP)  # As the system does; this terminal is not the session's own.
    command.process.communicate(timeout=60)

    assert command.process.returncode == STOPPED
    command.assert_nothing_is_left()


def test_stop_in_the_first_half_second_is_no_traceback(node: QuorateNode, tmp_path: Path) -> None:
    backups = Backups(tmp_path, node.bootstrap)
    for delay_s in FIRST_DELAYS_S:
        command = Marked(backups)
        eventually(lambda command=command: b"quorate" in _command_line(command), "Python to start")  # type: ignore[misc]
        time.sleep(delay_s)
        errors = _stop_until_it_ends(command)
        # Before the first line of Python's own start, nothing can answer.
        assert b"quorate/" not in errors, errors.decode()
        command.assert_nothing_is_left()


def _stop_until_it_ends(command: Marked) -> bytes:
    """Again where Python has swallowed the first stop, as it may until the command's first line has run."""
    for _ in range(3):
        command.process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return bytes(command.process.communicate(timeout=30)[1])
    raise AssertionError("the command goes on")


def _command_line(command: Marked) -> bytes:
    return Path(f"/proc/{command.process.pid}/cmdline").read_bytes()
