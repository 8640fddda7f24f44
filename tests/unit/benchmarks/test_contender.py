"""A measured run counts what processes took that are gone when it ends."""

from pathlib import Path

import pytest

from benchmarks.contenders import contender as contenders
from benchmarks.contenders.contender import Contender, Run
from benchmarks.contenders.control_group import make_control_group
from benchmarks.contenders.jobs import Job
from benchmarks.contenders.names import ContenderName
from tests.unit.benchmarks.burning_contender import BURNT_S

MODULE = "tests.unit.benchmarks.burning_contender"


def run_in(folder: Path) -> Run:
    output = folder / "output"
    output.mkdir()
    job = Job(bootstrap="", topics=(), folder=str(output), end_offsets=(2, 3))
    with Contender(ContenderName.LIMIT, MODULE, (), folder, ()) as contender:
        return contender.measure("a case", ContenderName.LIMIT, 0, job, 1)


def test_a_run_counts_processes_that_have_ended(tmp_path: Path) -> None:
    group = make_control_group()
    if group is None:
        pytest.skip("this user may make no control groups here")
    group.remove()

    run = run_in(tmp_path)

    assert run.records == 5
    assert run.counts_ended_processes
    assert run.cpu_seconds >= BURNT_S


def test_a_run_without_a_control_group_says_that_it_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders, "make_control_group", lambda: None)

    run = run_in(tmp_path)

    assert run.records == 5
    assert not run.counts_ended_processes
