"""A command's side: finds a warm Spark, starts one where there is none, ends one that hangs, and runs jobs on it.

Nothing here is worth the failure of a command. Where there can be no warm Spark, or it is lost in the middle of a job,
one line says why, and the command goes on with a Spark of its own: a task may run twice, here as anywhere.

A visit looks at the warm Sparks of this user without using them, and ends them.
"""

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

import quorate
from quorate.backup.spark.session.job import JobWatcher, OpenedSpark, QueryWatcher, Result
from quorate.backup.spark.session.settings import SparkSettings, find_java
from quorate.backup.spark.session.tasks import FinishedTask, TaskAdvance, Work
from quorate.backup.spark.warm.messages import (
    ANSWERS,
    TAKEN,
    ChannelLost,
    CommandHello,
    CommandRefused,
    Failed,
    JobDone,
    JobProgress,
    KeeperSilence,
    Order,
    Query,
    RunJob,
    Slots,
    SparkReady,
    Starting,
    Status,
    Stop,
    WarmChannel,
)
from quorate.backup.spark.warm.place import PlaceUnusable, WarmPlace, identity, warm_place, warm_places
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEEPER: Final = "quorate.backup.spark.warm.keeper"
_START_TIMEOUT_S: Final = 120.0
_ANSWER_TIMEOUT_S: Final = 15.0  # A keeper answers at once, and once a second while its Spark starts or is asked.
_LONGEST_SILENCE_S: Final = 60.0  # Of one that runs a job: it finds out itself, and sooner, where its JVM hangs.
_CANCEL_TIMEOUT_S: Final = 5.0
_LOOK_TIMEOUT_S: Final = 3.0
_POLL_S: Final = 0.02
_ATTEMPTS: Final = 3


class NoWarmSpark(QuorateError):
    """There can be none; the message says why."""


class WarmSpark:
    """Runs jobs on a warm Spark as long as there is one, and on one of the command's own after that."""

    def __init__(self, channel: WarmChannel, start_own: Callable[[], OpenedSpark], say: Callable[[str], None]) -> None:
        self._channel: WarmChannel | None = channel
        self._start_own = start_own
        self._own: OpenedSpark | None = None
        self._say = say

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def slots(self) -> int:
        done = self._ask(Slots(), lambda _: None)
        return self._own_spark().slots() if done is None else done.count

    def run(self, work: Work, tasks: Sequence[bytes], watcher: JobWatcher) -> list[bytes]:
        def tell(progress: JobProgress) -> None:
            watcher.tasks_advanced([TaskAdvance(*each) for each in progress.advanced])
            watcher.tasks_finished([FinishedTask(*each) for each in progress.finished], progress.finished_count)

        done = self._ask(_job(work, tasks), tell)
        if done is None:
            return self._own_spark().run(work, tasks, watcher)
        watcher.tasks_finished([], len(tasks))
        return list(done.rows)

    def query(self, action: "Callable[[SparkSession], Result]", watcher: QueryWatcher) -> Result:
        """One whose action can be pickled and gives a number."""

        def tell(progress: JobProgress) -> None:
            watcher.tasks_counted(progress.finished_count, progress.task_count)

        done: Any = self._ask(Query(pickle.dumps(action)), tell)
        return self._own_spark().query(action, watcher) if done is None else done.count

    def _ask(self, request: msgspec.Struct, tell: Callable[[JobProgress], None]) -> JobDone | None:
        """None where there is no warm Spark any more."""
        if self._channel is None:
            return None
        try:
            self._channel.send(request)
            while True:
                match self._channel.receive(_LONGEST_SILENCE_S):
                    case JobProgress() as progress:
                        tell(progress)
                    case JobDone() as done:
                        return done
                    case Failed(message):
                        raise QuorateError(message)
                    case other:
                        raise ChannelLost(f"it says {type(other).__name__}")
        except ChannelLost as error:
            self._say(f"the warm Spark is lost ({error}); this command goes on with a Spark of its own")
            self._channel.close()
            self._channel = None
            return None
        except QuorateError:
            raise
        except BaseException:
            self._cancel(self._channel)
            raise

    def _own_spark(self) -> OpenedSpark:
        if self._own is None:
            self._own = self._start_own()
        return self._own

    def _cancel(self, channel: WarmChannel) -> None:
        """The keeper sees the end of what is said to it, cancels the job, and closes when that is done."""
        self._channel = None
        channel.end_sending()
        give_up_s = time.monotonic() + _CANCEL_TIMEOUT_S
        with suppress(ChannelLost):
            while time.monotonic() < give_up_s:
                channel.receive(_CANCEL_TIMEOUT_S)
        channel.close()


def _job(work: Work, tasks: Sequence[bytes]) -> RunJob:
    umask = os.umask(0o077)
    os.umask(umask)
    folder: bytes | None = None
    with suppress(OSError):
        folder = os.getcwdb()
    environment = {os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()}
    return RunJob(pickle.dumps(work), tasks, environment, folder, umask)


def connect(settings: SparkSettings, keep_warm_s: float, say: Callable[[str], None]) -> WarmChannel:
    """A keeper whose Spark is ready; ``NoWarmSpark`` says why there is none."""
    try:
        place = _place(settings)
        place.make()
        return _Search(place, Order(settings=settings, keep_warm_s=keep_warm_s), say).channel()
    except (OSError, PlaceUnusable) as error:
        raise NoWarmSpark(str(error)) from None


def _place(settings: SparkSettings) -> WarmPlace:
    umask = os.umask(0o077)
    os.umask(umask)
    return warm_place(identity(settings, find_java(os.environ), os.environ, os.getcwd(), umask))


class _Search:
    """Connects, starts and replaces until there is an answer."""

    def __init__(self, place: WarmPlace, order: Order, say: Callable[[str], None]) -> None:
        self._place = place
        self._order = order
        self._say = say
        self._keeper: subprocess.Popen[bytes] | None = None
        self._started = 0

    def channel(self) -> WarmChannel:
        give_up_s = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < give_up_s:
            try:
                connection = self._place.dial(_ANSWER_TIMEOUT_S)
            except OSError:
                self._start_keeper()
                time.sleep(_POLL_S)
                continue
            channel = WarmChannel(connection, ANSWERS)
            try:
                self._wait_until_ready(channel, give_up_s)
            except KeeperSilence:
                channel.close()
                self._place.kill()
                self._say("the warm Spark hangs and is replaced")
            except (OSError, ChannelLost):  # It has just ended.
                channel.close()
                time.sleep(_POLL_S)
            except BaseException:
                channel.close()
                raise
            else:
                return channel
        raise NoWarmSpark(f"it did not start within {_START_TIMEOUT_S:.0f} s")

    def _wait_until_ready(self, channel: WarmChannel, give_up_s: float) -> None:
        try:
            token = self._place.token()
        except OSError as error:
            raise NoWarmSpark(f"its token cannot be read: {error.strerror}") from None
        channel.send(CommandHello(token, self._order.keep_warm_s))
        while time.monotonic() < give_up_s:
            match channel.receive(_ANSWER_TIMEOUT_S):
                case SparkReady():
                    return
                case Starting():
                    pass
                case CommandRefused(message):
                    raise NoWarmSpark(message)
                case other:
                    raise ChannelLost(f"it says {type(other).__name__}")
        raise NoWarmSpark(f"it did not start within {_START_TIMEOUT_S:.0f} s")

    def _start_keeper(self) -> None:
        """Where none is being started: a keeper that finds another one ends."""
        if self._keeper is not None:
            status = self._keeper.poll()
            if status is None:
                return
            if status == TAKEN:
                self._place.kill()  # Whoever has the place neither listens nor ends.
            elif self._started == _ATTEMPTS or status != 0:
                raise NoWarmSpark(_last_words(self._keeper) or f"its process ended at once, with status {status}")
        if self._started == _ATTEMPTS:
            raise NoWarmSpark("its processes end at once")
        self._started += 1
        self._keeper = _start(self._place, self._order, may_move=not self._order.settings.rows_pass_jvm)
        kept = f"{self._order.keep_warm_s:g} s"
        if self._started == 1:
            self._say(f"Spark stays warm, for {kept} after the last command that uses it; quorate spark stop ends it")


def _start(place: WarmPlace, order: Order, *, may_move: bool) -> "subprocess.Popen[bytes]":
    """A process that outlives this one, and its terminal."""
    paths = [str(Path(quorate.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", _KEEPER, str(place.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)},
        cwd="/" if may_move else None,
        start_new_session=True,
    )
    assert process.stdin is not None
    with suppress(OSError):  # One that has ended already has left its last words.
        process.stdin.write(msgspec.msgpack.encode(order))
        process.stdin.close()
    return process


def _last_words(keeper: "subprocess.Popen[bytes]") -> str:
    assert keeper.stdout is not None
    lines = keeper.stdout.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


class Visit(NamedTuple):
    place: WarmPlace
    status: Status | None  # None where it does not answer.

    @property
    def memory_bytes(self) -> int:
        """Of all its processes: what is theirs alone, and their shares of the rest. Nothing where nobody says."""
        keeper = self.place.keeper_pid()
        return 0 if keeper is None else sum(_memory_bytes(pid) for pid in (keeper, *_descendants(keeper)))


def visit_all() -> list[Visit]:
    return [Visit(place, _ask(place, stops=False)) for place in warm_places() if not place.is_empty()]


def end(visit: Visit) -> None:
    """By its own hand, or where it does not answer, at once."""
    if _ask(visit.place, stops=True) is None:
        visit.place.kill()


def _ask(place: WarmPlace, *, stops: bool) -> Status | None:
    try:
        connection = place.dial(_LOOK_TIMEOUT_S)
        with closing(connection):
            channel = WarmChannel(connection, ANSWERS)
            channel.send(CommandHello(place.token(), None))
            answer = channel.receive(_LOOK_TIMEOUT_S)
            if stops:
                channel.send(Stop())
    except (OSError, ChannelLost):
        return None
    return answer if isinstance(answer, Status) else None


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in children.read_text().split():
                found += [int(child), *_descendants(int(child))]
    return found


def _memory_bytes(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
