"""The backup's part of a benchmark run: measure, print the page, keep the results."""

import sys
from collections.abc import Callable

import msgspec

from benchmarks.backup import cases
from benchmarks.backup.report import make_report, render, save
from benchmarks.backup.runner import BackupRunner
from benchmarks.cases import Selection
from benchmarks.contenders import kafka_backup
from benchmarks.contenders.choice import ContenderChoice
from benchmarks.contenders.connector_jars import look_for_connector
from benchmarks.report import Environment


def measure_backup(choice: ContenderChoice, environment: Environment, say: Callable[[str], None]) -> None:
    """Kept where it is whole: nothing was left out, or nothing but what does not concern the backup."""
    if environment.apache_kafka is None:
        print(f"Not measuring the backup: {environment.without_apache_kafka}", file=sys.stderr)
        return
    settings = msgspec.structs.replace(cases.QUICK if choice.quick else cases.FULL, sizes=choice.sizes)
    connector, description = look_for_connector()
    is_stand_in = connector is not None and not connector.is_of_spark_version
    runner = BackupRunner(settings, Selection(words=choice.words), connector, choice.kafka_backup, say)
    runner.measure()
    report = make_report(
        environment,
        description,
        connector_is_stand_in=is_stand_in,
        kafka_backup=kafka_backup.describe(choice.kafka_backup),
        settings=settings,
        runs=runner.runs,
        idle_runs=runner.idle_runs,
    )
    print(render(report))
    if not choice.quick and (not choice.words or cases.PREFIX in choice.words):
        print(f"kept: {save(report)}")
