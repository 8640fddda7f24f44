"""The tasks of a job inside Spark's Python workers: each does its work, sends back one row, and tells how far it is.

The runner travels to the workers with all tasks of the job, so tasks must be small; they are lists of what to do, not
data.

Spark says something of a task only when it ends. So a worker sends its counts in small datagrams: nothing waits for
them, and one that is lost is made good by the next, since each has the totals. The driver takes only those that hold
the token of its session. They are for the display alone; what a job did is in its results.
"""

import gc
import os
import pickle
import secrets
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from quorate.kernel.decoding import decode_msgpack

if TYPE_CHECKING:
    import pyarrow
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession

_INTERVAL_S = 0.25
_MAX_DATAGRAM_BYTES = 512
_MAX_DATAGRAMS = 10_000  # In one look: a flood must not hold up the driver.

#: Told what a task did since it was last told: bytes and records.
Report = Callable[[int, int], None]


def ignore(size_bytes: int, record_count: int) -> None:
    """Reports to nobody."""


class TaskAdvance(NamedTuple):
    """What the running attempt of a task has done so far."""

    number: int
    size_bytes: int
    record_count: int


class ProgressAddress(msgspec.Struct, frozen=True):
    """Where the driver listens. Travels to the workers."""

    host: str
    port: int
    token: bytes


class _Datagram(msgspec.Struct, frozen=True, array_like=True):
    token: bytes
    number: int
    size_bytes: int
    record_count: int


class ProgressListener:
    """The driver's end. None of its methods waits."""

    def __init__(self, host: str) -> None:
        """``OSError`` where the host is none of this machine's."""
        family = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0][0]
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._socket.bind((host, 0))
            self._socket.setblocking(False)
        except OSError:
            self._socket.close()
            raise
        self.address = ProgressAddress(host, self._socket.getsockname()[1], secrets.token_bytes(16))

    def advances(self) -> list[TaskAdvance]:
        """What has come since the last look, the newest of each task."""
        found: dict[int, TaskAdvance] = {}
        with suppress(OSError):  # No more is there.
            for _ in range(_MAX_DATAGRAMS):
                data = self._socket.recv(_MAX_DATAGRAM_BYTES)
                advance = self._read(data)
                if advance is not None:
                    found[advance.number] = advance
        return list(found.values())

    def close(self) -> None:
        self._socket.close()

    def _read(self, data: bytes) -> TaskAdvance | None:
        try:
            datagram = decode_msgpack(data, _Datagram)
        except msgspec.MsgspecError:
            return None
        if not secrets.compare_digest(datagram.token, self.address.token):
            return None
        return TaskAdvance(datagram.number, max(0, datagram.size_bytes), max(0, datagram.record_count))


class ProgressReporter:
    """A worker's end: called with what was done, it tells the driver a few times a second. It never fails."""

    def __init__(self, address: ProgressAddress, number: int, now: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._number = number
        self._now = now
        self._size_bytes = self._record_count = 0
        self._socket: socket.socket | None = None
        with suppress(OSError):
            places = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)
            self._socket = socket.socket(places[0][0], socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            self._socket.connect(places[0][4])
        self._send()  # That it has begun.

    def __call__(self, size_bytes: int, record_count: int) -> None:
        self._size_bytes += size_bytes
        self._record_count += record_count
        if self._now() >= self._due:
            self._send()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self) -> None:
        self._due = self._now() + _INTERVAL_S
        if self._socket is not None:
            counts = _Datagram(self._address.token, self._number, self._size_bytes, self._record_count)
            with suppress(OSError):
                self._socket.send(msgspec.msgpack.encode(counts))


class FinishedTask(NamedTuple):
    number: int
    size_bytes: int
    record_count: int


class Outcome(NamedTuple):
    """What one task gives: the result for the driver, and how much it did, for the progress display."""

    result: bytes
    size_bytes: int
    record_count: int


class Work(Protocol):
    """What a task does. It reports what it has done while it is at it."""

    def __call__(self, task: bytes, report: Report = ignore, /) -> Outcome: ...


class TaskRunner:
    def __init__(
        self,
        work: Work,
        tasks: Sequence[bytes],
        finished: "Accumulator[list[FinishedTask]] | None",
        progress: ProgressAddress | None,
    ) -> None:
        self._work = work
        self._tasks = tasks
        self._finished = finished
        self._progress = progress

    def __call__(self, batches: "Iterator[pyarrow.Array]") -> "Iterator[pyarrow.Array]":
        import pyarrow

        for numbers in batches:
            yield pyarrow.array([self._run(index) for index in numbers.to_pylist()], pyarrow.binary())
        # The worker collects garbage after every task; what is loaded by now need not be looked at again.
        gc.freeze()

    def _run(self, index: int) -> bytes:
        outcome = self._reported(index)
        if self._finished is not None:
            self._finished.add([FinishedTask(index, outcome.size_bytes, outcome.record_count)])
        return outcome.result

    def _reported(self, index: int) -> Outcome:
        if self._progress is None:
            return self._work(self._tasks[index])
        reporter = ProgressReporter(self._progress, index)
        try:
            return self._work(self._tasks[index], reporter)
        finally:
            reporter.close()


def collect_results(session: "SparkSession", runner: TaskRunner, count: int) -> list[bytes]:
    return [bytes(row.result) for row in _results_frame(session, runner, count).collect()]


def _results_frame(session: "SparkSession", runner: TaskRunner, count: int) -> "DataFrame":
    """One partition, and so one Spark task, for each of ours; the DataFrame API works on every kind of session.

    An Arrow UDF and not ``mapInArrow``, which wants pandas, though it does not use it.
    """
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.util import PythonEvalType

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Type hints are preferred; a runner is no function that could have them.
        run = arrow_udf(runner, "binary", PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF)
    return session.range(0, count, 1, count).select(run("id").alias("result"))


class CarriedWork:
    """The work of a command, done in a worker that an earlier command's Spark has started.

    A worker inherits environment, folder and umask from the command that started Spark; here each task gets those of
    its own command, and gives them back: credentials, relative names and the modes of files are what its user means.
    """

    def __init__(self, work: bytes, changes: Mapping[str, str | None], folder: str | None, umask: int) -> None:
        self._work = work
        self._changes = dict(changes)
        self._folder = folder
        self._umask = umask

    def __call__(self, task: bytes, report: Report = ignore, /) -> Outcome:
        with self._surroundings():
            work: Work = pickle.loads(self._work)
            return work(task, report)

    @contextmanager
    def _surroundings(self) -> Iterator[None]:
        before = {name: os.environ.get(name) for name in self._changes}
        folder = os.getcwd()
        umask = os.umask(self._umask)
        try:
            _change(self._changes)
            if self._folder is not None:
                with suppress(OSError):  # It may be gone; who needs it will say so.
                    os.chdir(self._folder)
            yield
        finally:
            _change(before)
            os.chdir(folder)
            os.umask(umask)


def environment_changes(command: Mapping[str, str], keeper: Mapping[str, str]) -> dict[str, str | None]:
    """What the environment of a worker has to change; None: the name is to go."""
    changed: dict[str, str | None] = {name: value for name, value in command.items() if keeper.get(name) != value}
    return changed | {name: None for name in keeper if name not in command}


def _change(changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
