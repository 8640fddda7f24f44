"""Takes the contenders through the cases in turns, on one target after the other.

Who goes first changes from repeat to repeat. Each contender has done a small job of the same kind before it is timed.
Whoever writes finds an empty topic, but for the restore, which makes its own; all are gone before the next turn.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.cases import Selection
from benchmarks.contenders.connector_jars import Connector
from benchmarks.contenders.contender import Contender, ContenderFailed, Run
from benchmarks.contenders.kafka_backup import KafkaBackup
from benchmarks.contenders.names import ContenderName
from benchmarks.contenders.turns import turns_of
from benchmarks.restore.cases import Case, RestoreSettings, TargetKind, cases_of
from benchmarks.restore.materials import Materials
from benchmarks.restore.prepared_requests import prepare
from benchmarks.restore.restore_job import RestoreJob, target_topic
from benchmarks.restore.targets import Target, start_target
from benchmarks.turns import in_turn


class RestoreRunner:
    def __init__(
        self,
        settings: RestoreSettings,
        selection: Selection,
        connector: Connector | None,
        kafka_backup: KafkaBackup | None,
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._cases = [case for case in cases_of(settings.sizes) if selection.wants(case.name)]
        self._connector = connector
        self._kafka_backup = kafka_backup
        self._say = say
        self.runs: list[Run] = []

    def measure(self) -> None:
        with tempfile.TemporaryDirectory(prefix="quorate-benchmark-restore-") as name:
            folder = Path(name)
            materials = Materials(folder)
            materials.make(self._cases, self._connector, self._kafka_backup, self._say)
            for kind in TargetKind:
                cases = [case for case in self._cases if case.target is kind]
                if cases:
                    self._measure_on(kind, cases, materials, folder)

    def _measure_on(self, kind: TargetKind, cases: Sequence[Case], materials: Materials, folder: Path) -> None:
        with start_target(kind) as target, ExitStack() as stack:
            contenders = [stack.enter_context(each) for each in self._contenders(folder, target.pids)]
            for case in cases:
                self._compare(case, contenders, _Workplace(folder, target, materials, case))

    def _contenders(self, folder: Path, pids: Sequence[int]) -> Iterator[Contender]:
        """Each is started when the one before it is ready."""

        def contender(name: ContenderName, module: str, *arguments: str) -> Contender:
            return Contender(name, f"benchmarks.restore.{module}", arguments, folder, pids)

        yield contender(ContenderName.QUORATE, "quorate_restore")
        yield contender(ContenderName.QUORATE_COMMAND, "quorate_command")
        yield contender(ContenderName.PRODUCER_LOOP, "producer_loop", "1")
        yield contender(ContenderName.PRODUCER_LOOPS, "producer_loop", str(os.cpu_count() or 1))
        if self._connector is not None:
            jars = ",".join(map(str, self._connector.jars))
            yield contender(ContenderName.CONNECTOR, "spark_connector", jars)
        if self._kafka_backup is not None:
            yield contender(ContenderName.KAFKA_BACKUP, "kafka_backup", str(self._kafka_backup.binary))
        yield contender(ContenderName.LIMIT, "prepared_requests")
        yield contender(ContenderName.HASHED_LIMIT, "prepared_requests", "sha256")

    def _compare(self, case: Case, contenders: Sequence[Contender], work: "_Workplace") -> None:
        turns = turns_of(contenders, case.includes)
        for name, contender in turns:
            if name is not ContenderName.QUORATE_COMMAND:
                with work.job(name, small=True) as (job, _):
                    contender.run(job)
        for repeat in range(self._settings.repeats):
            for name, contender in in_turn(turns, repeat):
                with work.job(name) as (job, log_bytes):
                    self._take(contender.measure(case.name, name, repeat, job, log_bytes), case.shape.records)

    def _take(self, run: Run, records: int) -> None:
        if run.records != records:
            raise ContenderFailed(f"{run.contender} wrote {run.records} of {records} records")
        self._say(
            f"{run.case} {run.contender}: {run.seconds:.2f} s, {run.megabytes_per_second:,.0f} MB/s,"
            f" {run.cpu_seconds:.2f} CPU s and {run.cluster_cpu_seconds:.2f} of the target"
        )
        self.runs.append(run)


class _Workplace:
    """One case on one target: a job for each turn, with its topics, which must end where the source's do."""

    def __init__(self, folder: Path, target: Target, materials: Materials, case: Case) -> None:
        self._folder = folder
        self._target = target
        self._materials = materials
        self._case = case

    @contextmanager
    def job(self, contender: ContenderName, *, small: bool = False) -> Iterator[tuple[RestoreJob, int]]:
        shape = self._case.shape.small() if small else self._case.shape
        folder = self._materials.folder_for(shape, contender)
        job = RestoreJob(
            bootstrap=self._target.bootstrap,
            topics=shape.topics,
            folder=str(folder),
            end_offsets=shape.end_offsets,
            records=shape.records,
            producer_compression=shape.producer_compression,
        )
        names = job.target_topics
        if not contender.is_ours:
            self._target.topics.create(names, shape.partitions)
        if contender.copies_files:
            folder.mkdir()
            files = self._materials.log_files(shape)
            prepare(
                folder,
                self._target.leaders(names, shape.partitions),
                {(target_topic(topic), partition): paths for (topic, partition), paths in files.items()},
            )
        yield job, self._materials.log_bytes(shape)
        for found in self._target.topics.end_offsets(shape, names):
            if found != shape.end_offsets:
                raise ContenderFailed(f"{contender} left partitions that end at {found}, not at {shape.end_offsets}")
        self._target.delete_topics(names)
        if contender.copies_files:
            shutil.rmtree(folder)
