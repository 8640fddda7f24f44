"""The data source's part of a benchmark run: measure in turns on one cluster, print the page, keep the results."""

import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from benchmarks.cases import Selection
from benchmarks.contenders.choice import ContenderChoice
from benchmarks.contenders.connector_jars import Connector, find_connector
from benchmarks.contenders.contender import Contender, ContenderFailed, Run
from benchmarks.contenders.names import ContenderName
from benchmarks.contenders.shapes import shapes_of
from benchmarks.contenders.source import Source, start_source
from benchmarks.data_source import cases
from benchmarks.data_source.cases import Case, ReadSettings
from benchmarks.data_source.read_job import ReadJob, tasks_for
from benchmarks.data_source.report import make_report, render, save
from benchmarks.report import Environment
from benchmarks.turns import in_turn
from tests.peers.jars import PeersUnavailableError

# The JVM compiles what it runs often: all contenders get faster until about the fourth run.
_WARM_UP_RUNS = 3


def measure_data_source(choice: ContenderChoice, environment: Environment, say: Callable[[str], None]) -> None:
    """Kept where it is whole."""
    if environment.apache_kafka is None:
        print(f"Not measuring the data source: {environment.without_apache_kafka}", file=sys.stderr)
        return
    try:
        connector = find_connector()
    except PeersUnavailableError as error:
        print(f"Not measuring the data source: {error}", file=sys.stderr)
        return
    settings = msgspec.structs.replace(cases.QUICK if choice.quick else cases.FULL, sizes=choice.sizes)
    runner = ReadRunner(settings, Selection(words=choice.words), connector, say)
    runner.measure()
    report = make_report(environment, connector, settings, runner.runs)
    print(render(report))
    if not choice.quick and (not choice.words or cases.PREFIX in choice.words):
        print(f"kept: {save(report)}")


class ReadRunner:
    """Who goes first changes from repeat to repeat; all have read before they are timed."""

    def __init__(
        self, settings: ReadSettings, selection: Selection, connector: Connector, say: Callable[[str], None]
    ) -> None:
        self._settings = settings
        wanted = [Case(shape=shape) for shape in shapes_of(settings.sizes)]
        self._cases = [case for case in wanted if selection.wants(case.name)]
        self._connector = connector
        self._say = say
        self.runs: list[Run] = []

    def measure(self) -> None:
        with tempfile.TemporaryDirectory(prefix="quorate-benchmark-read-") as name, start_source() as source:
            folder = Path(name)
            jars = ",".join(map(str, self._connector.jars))
            module = "benchmarks.data_source"
            with ExitStack() as stack:
                ours = Contender(ContenderName.QUORATE, f"{module}.quorate_reader", (), folder, source.pids)
                stack.enter_context(ours)
                theirs = Contender(ContenderName.CONNECTOR, f"{module}.connector_reader", (jars,), folder, source.pids)
                stack.enter_context(theirs)
                limit = Contender(ContenderName.LIMIT, f"{module}.limit_reader", (), folder, source.pids)
                stack.enter_context(limit)
                for case in self._cases:
                    contenders = [each for each in (ours, theirs, limit) if case.includes(each.name)]
                    self._compare(case, source, contenders, folder)

    def _compare(self, case: Case, source: Source, contenders: list[Contender], folder: Path) -> None:
        shape = case.shape
        source.make(shape, self._say)
        log_bytes = sum(file.stat().st_size for file in source.log_files(shape.topics))
        empty = folder / "empty"
        empty.mkdir(exist_ok=True)
        job = ReadJob(
            bootstrap=source.bootstrap,
            topics=shape.topics,
            folder=str(empty),
            end_offsets=shape.end_offsets,
            records=shape.records,
            tasks=tasks_for(log_bytes, shape.partitions * shape.topic_count),
            value_size_bytes=shape.value_size_bytes,
        )
        for contender in contenders * _WARM_UP_RUNS:
            contender.run(job)
        for repeat in range(self._settings.repeats):
            for contender in in_turn(contenders, repeat):
                run = contender.measure(case.name, contender.name, repeat, job, log_bytes)
                self._take(run, shape.records)

    def _take(self, run: Run, records: int) -> None:
        if run.records != records:
            raise ContenderFailed(f"{run.contender} read {run.records} of {records} records")
        self._say(
            f"{run.case} {run.contender}: {run.records / run.seconds:,.0f} rows/s, "
            f"{run.records / run.cpu_seconds:,.0f} rows per CPU s"
        )
        self.runs.append(run)
