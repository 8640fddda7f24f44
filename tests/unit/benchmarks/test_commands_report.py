"""The page of whole commands, and the CPU time of processes that are nobody's children."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.commands.cases import QUICK, Way
from benchmarks.commands.measure import CommandReport, Run, render
from benchmarks.commands.watched_command import Workplace
from benchmarks.contenders.contender import ContenderFailed
from tests.unit.benchmarks.test_backup_report import ENVIRONMENT

# It ends when its input does.
BURNS = (
    "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nprint(flush=True); input()"
)
# Its child is let go of, and goes unheard.
LETS_GO = f"""
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", {BURNS!r}], start_new_session=True)
"""


def run(way: Way, seconds: float) -> Run:
    return Run(case="commands-incremental", way=way, seconds=seconds, cpu_seconds=seconds / 2)


def test_page_compares_runs_that_followed_each_other_and_judges_medians() -> None:
    runs = [run(Way.OWN, 3.0), run(Way.WARM, 1.5), run(Way.OWN, 3.2), run(Way.WARM, 0.8), run(Way.OWN, 5.0)]
    runs.append(run(Way.WARM, 2.0))
    page = render(CommandReport(environment=ENVIRONMENT, settings=QUICK, load_before=7.5, runs=runs))

    assert "before the run: 7.5" in page

    assert "3.20" in page
    assert "3.5 s, met" in page
    assert "1.0 s, missed" in page
    assert "| 2.5" in page  # 2.0, 4.0 and 2.5 times.


def test_time_of_a_process_that_is_nobody_s_child_counts_also_when_it_has_ended(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", LETS_GO], stdin=pipe, stdout=pipe, env=work.environment) as started:
        assert started.stdout is not None
        started.stdout.readline()  # Of the one that was let go of: it has done its work.
        assert work.cpu_seconds() >= 0.2
        started.communicate()
    assert work.cpu_seconds() >= 0.2


def test_what_was_there_before_a_command_is_not_its_cost(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", LETS_GO], stdin=pipe, stdout=pipe, env=work.environment) as started:
        assert started.stdout is not None
        started.stdout.readline()
        before_s = work.cpu_seconds()
        cost = work.run([sys.executable, "-c", "pass"])
        assert cost.cpu_seconds == pytest.approx(work.cpu_seconds() - before_s)
        started.communicate()


def test_command_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(ContenderFailed, match="ended with 3: no"):
        Workplace(tmp_path).run([sys.executable, "-c", "import sys; print('no'); sys.exit(3)"])
