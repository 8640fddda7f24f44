"""The JVM of a warm Spark, and the jobs of many commands on it, at the same time where they come so.

Each job is in a pool of its own, among which Spark shares its slots fairly: a small command does not wait for the end
of a large one.
"""

import os
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from quorate.backup.spark.session.class_archive import ClassArchive, class_archive, record_in_background
from quorate.backup.spark.session.jvm_process import JvmProcess
from quorate.backup.spark.session.settings import SparkSettings, find_java, spark_conf
from quorate.backup.spark.session.tasks import FinishedTask, TaskAdvance
from quorate.backup.spark.warm.carried_work import CarriedWork, environment_changes
from quorate.backup.spark.warm.messages import Channel, ChannelLost, Done, Failed, Progress, Query, Run, Slots
from quorate.kernel.errors import QuorateError

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

    def serve(self, channel: Channel, job_begins: Callable[[], None]) -> None:
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

    def _answer(self, request: Any, driver: "ClassicDriver", channel: Channel, job_begins: Callable[[], None]) -> Done:
        match request:
            case Slots():
                return Done(count=driver.slots())
            case Run():
                job_begins()
                return Done(rows=driver.run(self._carried(request), request.tasks, _Relay(channel)))
            case Query():
                job_begins()
                return Done(count=driver.query(pickle.loads(request.action), _Relay(channel)))
            case _:
                raise QuorateError(f"a warm Spark knows no {type(request).__name__} at this point")

    def _carried(self, request: Run) -> CarriedWork:
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

    def __init__(self, channel: Channel) -> None:
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
        self._channel.send(Progress(finished_count, finished, advanced, task_count))
