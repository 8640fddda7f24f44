"""The process that keeps a warm Spark: it starts the JVM, runs the jobs of commands on it, and ends when it is idle.

Nothing ties it to the command that started it. It ends by itself when nobody has used it for the time that was asked
for, when its JVM has ended or hangs, and when its folder was taken away. Its JVM sees it end, however it ends.

Each job is in a pool of its own, among which Spark shares its slots fairly: a small command does not wait for the end
of a large one.
"""

import math
import os
import pickle
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from quorate.backup.spark.session.class_archive import ClassArchive, class_archive, record_in_background
from quorate.backup.spark.session.jvm_process import JvmProcess
from quorate.backup.spark.session.settings import SparkSettings, find_java, spark_conf
from quorate.backup.spark.session.tasks import CarriedWork, FinishedTask, TaskAdvance, environment_changes
from quorate.backup.spark.warm.messages import (
    MAX_FIRST_BYTES,
    REQUESTS,
    TAKEN,
    ChannelLost,
    CommandHello,
    CommandRefused,
    Failed,
    JobDone,
    JobProgress,
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
from quorate.backup.spark.warm.place import PlaceUnusable, WarmPlace, sweep
from quorate.kernel.decoding import decode_msgpack
from quorate.kernel.errors import QuorateError

_TAKEN_FOR_S: Final = 5.0  # As long as one that is ending may need.
_LOCK_POLL_S: Final = 0.05
_TURN_S: Final = 0.25
_STARTING_SAID_S: Final = 1.0
_HELLO_TIMEOUT_S: Final = 10.0
_START_TIMEOUT_S: Final = 180.0
_LAST_WORDS_S: Final = 0.5


if TYPE_CHECKING:
    from quorate.backup.spark.session.classic_driver import ClassicDriver

_SHARED: Final = {"spark.scheduler.mode": "FAIR"}
_ANSWER_TIMEOUT_S: Final = 10.0
_PULSE_S: Final = 5.0
_LONGEST_SILENCE_S: Final = 30.0
_SAID_EVERY_S: Final = 1.0


class WarmJvm:
    def __init__(self, folder: Path, settings: SparkSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._process: JvmProcess | None = None
        self._archive: ClassArchive | None = None
        self._session: Any = None
        self._idle_drivers: list[ClassicDriver] = []
        self._answered_s = time.monotonic()
        self._environment = dict(os.environ)

    def start(self, note: Callable[[int], None]) -> None:
        """``note`` is told the pid of the JVM as soon as there is one."""
        if self._settings.keeps_classes:
            self._archive = class_archive(find_java(os.environ), os.environ)
        options = [] if self._archive is None else self._archive.jvm_options()
        conf = _SHARED | spark_conf(self._settings, options, folder=self._folder, package_zip=None)
        self._process = JvmProcess(self._folder, note)
        self._process.start(conf)
        from quorate.backup.spark.session.driver_jvm import DriverJvm  # Loaded while the JVM starts.

        self._session = DriverJvm(self._process).open(conf, "quorate")
        self._answered_s = time.monotonic()
        threading.Thread(target=self._feel_pulse, daemon=True).start()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        was_used = self._session is not None
        self.kill()
        if was_used and self._archive is not None and self._archive.begin_attempt():
            record_in_background()

    def is_well(self) -> bool:
        return self._is_running() and time.monotonic() - self._answered_s < _LONGEST_SILENCE_S

    def _is_running(self) -> bool:
        return self._process is not None and self._process.is_running()

    def answers(self) -> bool:
        """Whether it does so now. One that does not is left to its end."""
        asking = threading.Thread(target=self._ask, daemon=True)
        before_s = time.monotonic()
        asking.start()
        asking.join(_ANSWER_TIMEOUT_S)
        if self._answered_s >= before_s:
            return True
        self._answered_s -= _LONGEST_SILENCE_S
        return False

    def serve(self, channel: WarmChannel, job_begins: Callable[[], None]) -> None:
        """What a command asks for, until it has gone."""
        from quorate.backup.spark.session.classic_driver import ClassicDriver

        driver = self._idle_drivers.pop() if self._idle_drivers else ClassicDriver(self._session, is_shared=True)
        while True:
            try:
                request = channel.receive()
            except ChannelLost:
                self._idle_drivers.append(driver)  # Not after a job that was cancelled: tasks of it may still report.
                raise
            try:
                answer = self._answer(request, driver, channel, job_begins)
            except QuorateError as error:
                if not self.answers():
                    return  # No fault of the job's: the command is to run it elsewhere.
                channel.send(Failed(str(error)))
            else:
                channel.send(answer)

    def _answer(
        self, request: Any, driver: "ClassicDriver", channel: WarmChannel, job_begins: Callable[[], None]
    ) -> JobDone:
        match request:
            case Slots():
                return JobDone(count=driver.slots())
            case RunJob():
                job_begins()
                return JobDone(rows=driver.run(self._carried(request), request.tasks, _Relay(channel)))
            case Query():
                job_begins()
                return JobDone(count=driver.query(pickle.loads(request.action), _Relay(channel)))
            case _:
                raise QuorateError(f"a warm Spark knows no {type(request).__name__} at this point")

    def _carried(self, request: RunJob) -> CarriedWork:
        environment = {os.fsdecode(name): os.fsdecode(value) for name, value in request.environment.items()}
        folder = None if request.folder is None else os.fsdecode(request.folder)
        return CarriedWork(request.work, environment_changes(environment, self._environment), folder, request.umask)

    def _feel_pulse(self) -> None:
        while self._is_running():
            self._ask()
            time.sleep(_PULSE_S)

    def _ask(self) -> None:
        try:
            self._session.sparkContext._jvm.System.nanoTime()
        except Exception:  # However it says that it is gone.
            return
        self._answered_s = time.monotonic()


class CommandGone(ChannelLost):
    """Whoever wanted the job wants it no more."""


class _Relay:
    """Tells a command how its job is getting on, and the job that its command has gone."""

    def __init__(self, channel: WarmChannel) -> None:
        self._channel = channel
        self._advanced: dict[int, TaskAdvance] = {}
        self._finished: list[FinishedTask] = []
        self._said_s = time.monotonic()

    def tasks_advanced(self, advanced: Sequence[TaskAdvance]) -> None:
        self._advanced |= {each.number: each for each in advanced}

    def tasks_finished(self, finished: Sequence[FinishedTask], finished_count: int) -> None:
        self._finished += finished
        self._say(finished_count, 0, has_news=bool(self._advanced or self._finished))

    def tasks_counted(self, finished_count: int, task_count: int) -> None:
        self._say(finished_count, task_count, has_news=True)

    def phase(self, name: str) -> None:
        """A job has none."""

    def _say(self, finished_count: int, task_count: int, *, has_news: bool) -> None:
        if self._channel.has_ended():
            raise CommandGone
        now_s = time.monotonic()
        if not has_news and now_s - self._said_s < _SAID_EVERY_S:
            return
        if not self._channel.takes_more():
            return  # The command was stopped. It will be told all when it goes on.
        self._said_s = now_s
        finished = [(each.number, each.size_bytes, each.record_count) for each in self._finished]
        advanced = [(each.number, each.size_bytes, each.record_count) for each in self._advanced.values()]
        self._advanced, self._finished = {}, []
        self._channel.send(JobProgress(finished_count, finished, advanced, task_count))


class Usage:
    """Kept for commands that are connected, and as long after the last of them as that one asked for."""

    def __init__(self, now_s: float, keep_warm_s: float) -> None:
        self.began_s = now_s
        self.commands = 0
        self.jobs = 0
        self._left_s = now_s
        self._keep_warm_s = keep_warm_s
        self._is_stopped = False

    def came(self, keep_warm_s: float) -> None:
        self.commands += 1
        self._keep_warm_s = keep_warm_s

    def left(self, now_s: float) -> None:
        self.commands -= 1
        self._left_s = now_s

    def stop(self) -> None:
        """Whatever uses it."""
        self._is_stopped = True

    def ends_in_s(self, now_s: float) -> float:
        if self._is_stopped:
            return 0.0
        return math.inf if self.commands else max(0.0, self._left_s + self._keep_warm_s - now_s)


class Keeper:
    def __init__(self, place: WarmPlace, order: Order) -> None:
        self._place = place
        self._order = order
        self._token = place.write_token()
        self._listener = place.listen()
        self._usage = Usage(time.monotonic(), order.keep_warm_s)
        self._guard = threading.Lock()  # Of the usage, and of whether connections are still taken.
        self._is_ending = False
        self._settled = threading.Event()  # Spark is ready, or will not be.
        self._failure: str | None = None
        self._jvm = WarmJvm(place.spark_folder, order.settings)
        place.note(os.getpid(), None)

    def keep(self) -> None:
        """Until its time is over."""
        threading.Thread(target=self._accept, daemon=True).start()
        too_late = threading.Timer(_START_TIMEOUT_S, self._jvm.kill)  # Whoever waits for it has gone by then.
        too_late.daemon = True
        too_late.start()
        try:
            try:
                self._jvm.start(lambda pid: self._place.note(os.getpid(), pid))
            except (QuorateError, OSError) as error:
                self._failure = str(error)
            too_late.cancel()
            self._settled.set()
            while self._failure is None and not self._is_over():
                time.sleep(_TURN_S)
        finally:
            self._end()

    def _is_over(self) -> bool:
        with self._guard:
            ends_in_s = self._usage.ends_in_s(time.monotonic())
            is_useless = not self._jvm.is_well() or (self._usage.commands == 0 and not self._place.is_still_there())
            self._is_ending = is_useless or ends_in_s <= 0
            return self._is_ending

    def _end(self) -> None:
        """First nobody finds it any more, then its JVM ends, and the place is the next one's at last."""
        with self._guard:
            self._is_ending = True
        with suppress(OSError):
            if self._place.is_still_there():
                self._place.socket_path.unlink(missing_ok=True)
        self._listener.close()
        if self._failure is not None:
            time.sleep(_LAST_WORDS_S)  # For those who wait to be told.
        self._jvm.end()
        if self._place.is_still_there():
            self._place.remove()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        channel = WarmChannel(connection, REQUESTS)
        try:
            hello = channel.receive(_HELLO_TIMEOUT_S, MAX_FIRST_BYTES)
            if not isinstance(hello, CommandHello) or not secrets.compare_digest(
                hello.token.encode(), self._token.encode()
            ):
                channel.send(CommandRefused("the token is another one's"))
            elif hello.keep_warm_s is None:
                self._show(channel)
            else:
                self._serve_command(channel, hello.keep_warm_s)
        except ChannelLost:
            pass
        finally:
            channel.close()

    def _show(self, channel: WarmChannel) -> None:
        now_s = time.monotonic()
        with self._guard:
            usage = self._usage
            state = "ready" if self._settled.is_set() else "starting"
            status = Status(
                pid=os.getpid(),
                state=state if usage.commands == 0 or state == "starting" else "in use",
                commands=usage.commands,
                jobs=usage.jobs,
                age_s=now_s - usage.began_s,
                ends_in_s=usage.ends_in_s(now_s) if usage.commands == 0 else None,
                master=self._order.settings.master,
            )
        channel.send(status)
        if isinstance(channel.receive(_HELLO_TIMEOUT_S), Stop):
            with self._guard:
                self._usage.stop()
            if not self._settled.is_set():
                self._jvm.kill()

    def _serve_command(self, channel: WarmChannel, keep_warm_s: float) -> None:
        with self._guard:
            if self._is_ending:
                return
            self._usage.came(keep_warm_s)
        try:
            while not self._settled.wait(_STARTING_SAID_S):
                channel.send(Starting())
            if self._failure is not None:
                channel.send(CommandRefused(self._failure))
            elif self._jvm.answers():
                channel.send(SparkReady())
                self._jvm.serve(channel, self._job_begins)
        finally:
            with self._guard:
                self._usage.left(time.monotonic())

    def _job_begins(self) -> None:
        with self._guard:
            self._usage.jobs += 1


def take_place(place: WarmPlace) -> bool:
    """Wait a little for a keeper that is just ending; one that listens is there to stay."""
    give_up_s = time.monotonic() + _TAKEN_FOR_S
    while time.monotonic() < give_up_s:
        with suppress(FileNotFoundError):
            place.make()
            if place.lock():
                return True
        if place.socket_path.exists():
            return False
        time.sleep(_LOCK_POLL_S)
    return False


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    order = decode_msgpack(sys.stdin.buffer.read(), Order)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    place = WarmPlace(Path(sys.argv[1]))
    try:
        if not take_place(place):
            return TAKEN
        place.clear()
        sweep()
        keeper = Keeper(place, order)
        log = os.open(place.folder / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except (OSError, PlaceUnusable) as error:
        words = str(error) if isinstance(error, PlaceUnusable) else f"{place.folder}: {error.strerror}"
        os.write(1, words.encode(errors="replace"))
        return 1
    # Until here the command reads what goes wrong.
    os.dup2(log, 1)
    os.dup2(log, 2)
    keeper.keep()
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # Threads of commands that have gone may still be at work.
