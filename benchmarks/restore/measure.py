"""The restore's part of a benchmark run: measure, print the page, keep the results."""

from collections.abc import Callable, Sequence

import msgspec

from benchmarks.cases import Selection
from benchmarks.contenders import kafka_backup
from benchmarks.contenders.choice import ContenderChoice
from benchmarks.contenders.connector_jars import look_for_connector
from benchmarks.report import Environment
from benchmarks.restore import cases
from benchmarks.restore.report import make_report, render, save
from benchmarks.restore.runner import RestoreRunner


def measure_restore(choice: ContenderChoice, environment: Environment, say: Callable[[str], None]) -> None:
    """Kept where it is whole, or one of its targets is."""
    settings = msgspec.structs.replace(cases.QUICK if choice.quick else cases.FULL, sizes=choice.sizes)
    connector, description = look_for_connector()
    runner = RestoreRunner(settings, Selection(words=choice.words), connector, choice.kafka_backup, say)
    runner.measure()
    report = make_report(
        environment,
        description,
        connector_is_stand_in=connector is not None and not connector.is_of_spark_version,
        kafka_backup=kafka_backup.describe(choice.kafka_backup),
        settings=settings,
        runs=runner.runs,
    )
    print(render(report))
    part = whole_part(choice.words)
    if part is not None and not choice.quick:
        print(f"kept: {save(report, part)}")


def whole_part(words: Sequence[str]) -> str | None:
    """Which part of the restore's benchmark these words ask for in full: all of it, one target, or none."""
    asked = [word for word in words if word.startswith(cases.PREFIX)]
    if not asked or cases.PREFIX in asked:
        return cases.PREFIX
    targets = [f"{cases.PREFIX}-{kind}" for kind in cases.TargetKind]
    return asked[0] if len(asked) == 1 and asked[0] in targets else None
