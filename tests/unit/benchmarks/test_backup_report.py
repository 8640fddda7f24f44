"""The page of the backup's benchmark: it must not let a stand-in pass for what was to be measured."""

from types import SimpleNamespace

import msgspec

from benchmarks.backup.cases import QUICK, Case
from benchmarks.backup.report import make_report, render
from benchmarks.contenders.names import ContenderName
from benchmarks.contenders.shapes import Sizes, shapes_of
from benchmarks.contenders.tables import uncounted_lines
from benchmarks.contenders.turns import turns_of
from benchmarks.report import Environment
from benchmarks.turns import in_turn
from tests.unit.benchmarks.test_backup_summary import run

ENVIRONMENT = Environment(
    date="2026-01-01",
    commit="abcdef0",
    cores=2,
    processor="any",
    kernel="6",
    python="3.11",
    java="17",
    apache_kafka="4.3.1",
    without_apache_kafka=None,
    apache_kafka_heap_mb=1024,
)


def page(*, is_stand_in: bool) -> str:
    report = make_report(
        ENVIRONMENT, "4.2.0 on Spark 4.3.0", connector_is_stand_in=is_stand_in, settings=QUICK, runs=[], idle_runs=[]
    )
    return render(report)


def test_page_names_the_connector_and_warns_of_a_stand_in() -> None:
    assert "Spark connector: 4.2.0 on Spark 4.3.0" in page(is_stand_in=True)
    assert "not proven" in page(is_stand_in=True)
    assert "not proven" not in page(is_stand_in=False)


def test_page_warns_where_cpu_seconds_are_missing() -> None:
    runs = [run(ContenderName.QUORATE), msgspec.structs.replace(run(ContenderName.LIMIT), counts_ended_processes=False)]
    assert "CPU seconds are too low" in "".join(uncounted_lines(runs))
    assert uncounted_lines(runs[:1]) == []


def test_whoever_takes_part_does_something_of_its_own() -> None:
    quorate, limit = (SimpleNamespace(name=name) for name in (ContenderName.QUORATE, ContenderName.LIMIT))
    turns = {shape.name: turns_of([quorate, limit], Case(shape=shape).includes) for shape in shapes_of(Sizes())}
    uncompressed = turns.pop("uncompressed")
    assert set(turns) == {"lz4", "1rec", "20rec", "320rec", "topics"}
    for other in turns.values():
        assert other == [(ContenderName.QUORATE, quorate), (ContenderName.LIMIT, limit)]
    assert uncompressed == [
        (ContenderName.QUORATE, quorate),
        (ContenderName.QUORATE_ZSTD, quorate),
        (ContenderName.LIMIT, limit),
    ]


def test_nobody_goes_first_every_time() -> None:
    assert [list(in_turn("ab", repeat)) for repeat in range(3)] == [["a", "b"], ["b", "a"], ["a", "b"]]
