"""The restore's part of a benchmark run: measure, print the page, keep the results."""

from collections.abc import Callable, Sequence

from benchmarks.cases import Selection
from benchmarks.contenders.connector_jars import look_for_connector
from benchmarks.report import Environment
from benchmarks.restore import cases
from benchmarks.restore.report import make_report, render, save
from benchmarks.restore.runner import RestoreRunner


def measure_restore(words: Sequence[str], environment: Environment, say: Callable[[str], None], *, quick: bool) -> None:
    """Kept where it is whole: nothing was left out, or nothing but what does not concern the restore."""
    settings = cases.QUICK if quick else cases.FULL
    connector, description = look_for_connector()
    runner = RestoreRunner(settings, Selection(words=tuple(words)), connector, say)
    runner.measure()
    report = make_report(
        environment,
        description,
        connector_is_stand_in=connector is not None and not connector.is_of_spark_version,
        settings=settings,
        runs=runner.runs,
    )
    print(render(report))
    if not quick and (not words or cases.PREFIX in words):
        print(f"kept: {save(report)}")
