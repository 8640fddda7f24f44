"""Takes the contenders through the cases in turns, on one cluster and in one run.

Who goes first changes from repeat to repeat. Each contender has done a small job of the same kind before it is timed.
What a run has written is removed before the next one starts, so that nobody's pages are written back in another's time.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from benchmarks.backup.cases import IDLE_PARTITIONS, BackupSettings, Case
from benchmarks.cases import Selection
from benchmarks.contenders.connector_jars import Connector
from benchmarks.contenders.contender import Contender, ContenderFailed, Run
from benchmarks.contenders.jobs import Job
from benchmarks.contenders.kafka_backup import KafkaBackup
from benchmarks.contenders.names import ContenderName
from benchmarks.contenders.shapes import Shape, shapes_of
from benchmarks.contenders.source import Source, start_source
from benchmarks.contenders.turns import turns_of
from benchmarks.turns import in_turn

_IDLE_RECORDS = 600
_FEW_RECORDS = 100
_BUSY_PARTITIONS = 10


class IdleRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the backup over many partitions that have little or nothing new."""

    partitions: int
    new_records: int
    is_first: bool
    seconds: float

    @property
    def milliseconds_per_partition(self) -> float:
        return self.seconds * 1000 / self.partitions


class BackupRunner:
    def __init__(
        self,
        settings: BackupSettings,
        selection: Selection,
        connector: Connector | None,
        kafka_backup: KafkaBackup | None,
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        cases = [Case(shape=shape) for shape in shapes_of(settings.sizes)]
        self._cases = [case for case in cases if selection.wants(case.name)]
        self._wants_idle_partitions = selection.wants(IDLE_PARTITIONS)
        self._connector = connector
        self._kafka_backup = kafka_backup
        self._say = say
        self.runs: list[Run] = []
        self.idle_runs: list[IdleRun] = []

    def measure(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="quorate-benchmark-backup-"))
        try:
            with start_source() as source, _log_server() as (log_server_pid, port):
                work = _Workplace(folder, source, port, self._say)
                with ExitStack() as stack:
                    contenders = [
                        stack.enter_context(each) for each in self._contenders(folder, source.pids, log_server_pid)
                    ]
                    for case in self._cases:
                        self._compare(case, contenders, work)
                    if self._wants_idle_partitions:
                        self._measure_idle_partitions(contenders[0], work)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _contenders(self, folder: Path, broker_pids: Sequence[int], log_server_pid: int) -> Iterator[Contender]:
        """Quorate first. Each is started when the one before it is ready."""

        def contender(name: ContenderName, module: str, *arguments: str, source: Sequence[int]) -> Contender:
            return Contender(name, f"benchmarks.backup.{module}", arguments, folder, source)

        yield contender(ContenderName.QUORATE, "quorate_backup", source=broker_pids)
        if not self._cases:
            return
        yield contender(ContenderName.CONSUMER_LOOP, "consumer_loop", "1", source=broker_pids)
        cores = str(os.cpu_count() or 1)
        yield contender(ContenderName.CONSUMER_LOOPS, "consumer_loop", cores, source=broker_pids)
        if self._connector is not None:
            jars = ",".join(map(str, self._connector.jars))
            yield contender(ContenderName.CONNECTOR, "spark_connector", jars, source=broker_pids)
        if self._kafka_backup is not None:
            binary = str(self._kafka_backup.binary)
            yield contender(ContenderName.KAFKA_BACKUP, "kafka_backup", binary, source=broker_pids)
        yield contender(ContenderName.LIMIT, "loopback_copy", source=[log_server_pid])
        yield contender(ContenderName.HASHED_LIMIT, "loopback_copy", "sha256", source=[log_server_pid])

    def _compare(self, case: Case, contenders: Sequence[Contender], work: "_Workplace") -> None:
        work.provide(case)
        turns = turns_of(contenders, case.includes)
        for name, contender in turns:
            with work.job(case, name, small=True) as (job, _):
                contender.run(job)
        for repeat in range(self._settings.repeats):
            for name, contender in in_turn(turns, repeat):
                with work.job(case, name) as (job, log_bytes):
                    run = contender.measure(case.name, name, repeat, job, log_bytes)
                self._take(run, case.shape.records)

    def _take(self, run: Run, records: int) -> None:
        if run.records != records:
            raise ContenderFailed(f"{run.contender} copied {run.records} of {records} records")
        self._say(
            f"{run.case} {run.contender}: {run.seconds:.2f} s, {run.megabytes_per_second:,.0f} MB/s,"
            f" {run.cpu_seconds:.2f} CPU s and {run.cluster_cpu_seconds:.2f} of its source"
        )
        self.runs.append(run)

    def _measure_idle_partitions(self, quorate: Contender, work: "_Workplace") -> None:
        settings = self._settings
        topics = [f"idle-{number}" for number in range(settings.idle_topics)]
        partitions = len(topics) * settings.idle_partitions_per_topic
        work.source.topics.create(topics, settings.idle_partitions_per_topic)
        job = work.idle_job(tuple(topics))
        for number in range(settings.idle_runs):
            # A few partitions of one topic have something new each time; at first, some of several.
            new_records = _IDLE_RECORDS if number == 0 else _FEW_RECORDS
            busy = topics[:6] if number == 0 else topics[:1]
            new = Shape(name="idle", records_per_topic=new_records // len(busy), partitions=_BUSY_PARTITIONS)
            work.source.topics.fill(new, busy)
            result = quorate.run(job)
            if result.records != new_records:
                raise ContenderFailed(f"{result.records} records of {new_records} were found in idle partitions")
            run = IdleRun(partitions=partitions, new_records=new_records, is_first=number == 0, seconds=result.seconds)
            self._say(f"{IDLE_PARTITIONS}: {run.seconds:.2f} s, {run.milliseconds_per_partition:.2f} ms a partition")
            self.idle_runs.append(run)


class _Workplace:
    """The topics that are filled, and a folder for each job, gone after it."""

    def __init__(self, folder: Path, source: Source, log_server_port: int, say: Callable[[str], None]) -> None:
        self.source = source
        self._folder = folder
        self._log_server_port = log_server_port
        self._say = say

    def provide(self, case: Case) -> None:
        """Fill the case's topics, and small ones like them to warm up with."""
        for shape in (case.shape, case.shape.small()):
            self.source.make(shape, self._say)

    @contextmanager
    def job(self, case: Case, contender: ContenderName, *, small: bool = False) -> Iterator[tuple[Job, int]]:
        shape = case.shape.small() if small else case.shape
        files = self.source.log_files(shape.topics)
        output = Path(tempfile.mkdtemp(prefix="output-", dir=self._folder))
        try:
            yield (
                Job(
                    bootstrap=self.source.bootstrap,
                    topics=tuple(map(str, files)) if contender.copies_files else shape.topics,
                    folder=str(output),
                    end_offsets=shape.end_offsets,
                    records=shape.records,
                    backup_compression=contender.backup_compression,
                    log_server_port=self._log_server_port,
                ),
                sum(file.stat().st_size for file in files),
            )
        finally:
            shutil.rmtree(output)

    def idle_job(self, topics: tuple[str, ...]) -> Job:
        output = self._folder / "idle"
        output.mkdir()
        return Job(bootstrap=self.source.bootstrap, topics=topics, folder=str(output), backup_mode="incremental")


@contextmanager
def _log_server() -> Iterator[tuple[int, int]]:
    """The process that stands in for the brokers, and its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.backup.log_server"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
