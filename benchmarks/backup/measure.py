"""The backup's part of a benchmark run: measure, print the page, keep the results."""

import sys
from collections.abc import Callable, Sequence

import msgspec

from benchmarks.backup import cases
from benchmarks.backup.report import make_report, render, save
from benchmarks.backup.runner import BackupRunner
from benchmarks.cases import Selection
from benchmarks.contenders.connector_jars import look_for_connector
from benchmarks.contenders.shapes import Sizes
from benchmarks.report import Environment


def measure_backup(
    words: Sequence[str], environment: Environment, say: Callable[[str], None], sizes: Sizes, *, quick: bool
) -> None:
    """Kept where it is whole: nothing was left out, or nothing but what does not concern the backup."""
    if environment.apache_kafka is None:
        print(f"Not measuring the backup: {environment.without_apache_kafka}", file=sys.stderr)
        return
    settings = msgspec.structs.replace(cases.QUICK if quick else cases.FULL, sizes=sizes)
    connector, description = look_for_connector()
    is_stand_in = connector is not None and not connector.is_of_spark_version
    runner = BackupRunner(settings, Selection(words=tuple(words)), connector, say)
    runner.measure()
    report = make_report(
        environment,
        description,
        connector_is_stand_in=is_stand_in,
        settings=settings,
        runs=runner.runs,
        idle_runs=runner.idle_runs,
    )
    print(render(report))
    if not quick and (not words or cases.PREFIX in words):
        print(f"kept: {save(report)}")
