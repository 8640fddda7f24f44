"""What users see while a job runs: a live line on a terminal, plain lines elsewhere."""

import io
from typing import Any

import pytest

from quorate.backup.spark.run_progress import RunProgress
from quorate.backup.spark.session.tasks import FinishedTask, TaskAdvance
from quorate.cli.progress_display import ProgressDisplay
from quorate.cli.terminal import counted

MB = 1_000_000


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr("quorate.cli.progress_display.time.monotonic", lambda: self.now_s)


def two_tasks() -> RunProgress:
    """Of one topic each, the first of them three times as large."""
    return RunProgress([30 * MB, 10 * MB], [frozenset({"orders"}), frozenset({"payments"})], 2)


def finish_first(display: ProgressDisplay) -> None:
    display.tasks_finished([FinishedTask(0, 30 * MB, 60_000)], 1)


def test_plain_lines_say_topics_rates_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    with ProgressDisplay("backup") as display:
        display.begin(two_tasks())
        clock.now_s += 6
        finish_first(display)

    shown = capsys.readouterr()
    assert shown.err == "backup: 75%, 1/2 topics, 1/2 tasks, 5.0 MB/s, 10,000 records/s, 2 s left\n"
    assert shown.out == ""


def test_rate_and_time_left_count_from_the_first_task_and_not_from_the_start_of_spark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    with ProgressDisplay("backup") as display:
        display.phase("planning")
        display.begin(two_tasks())
        display.phase("starting Spark")
        clock.now_s += 600
        display.phase("copying")
        clock.now_s += 60  # Spark is getting its workers ready.
        display.tasks_advanced([TaskAdvance(0, 0, 0)])
        clock.now_s += 6
        display.tasks_advanced([TaskAdvance(0, 10 * MB, 12_000)])
        display.tasks_finished([], 0)
        display.phase("committing")

    assert capsys.readouterr().err.splitlines() == [
        "planning",
        "starting Spark",
        "copying",
        "backup: 25%, 0/2 topics, 0/2 tasks, 1.7 MB/s, 2,000 records/s, 18 s left",
        "committing",
    ]


def test_one_is_no_plural() -> None:
    assert [counted(number, "topic") for number in (0, 1, 2, 1_000)] == [
        "0 topics",
        "1 topic",
        "2 topics",
        "1,000 topics",
    ]
    assert counted(2, "copy", "copies") == "2 copies"


class ClosedTerminal(Terminal):
    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def test_terminal_that_is_gone_does_not_fail_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_terminal in (True, False):
        closed = ClosedTerminal()
        monkeypatch.setattr(closed, "isatty", lambda is_terminal=is_terminal: is_terminal)
        monkeypatch.setattr("sys.stderr", closed)
        monkeypatch.setattr("quorate.cli.progress_display._live_progress", _live_line_that_fails)
        with ProgressDisplay("backup") as display:
            display.say("starting Spark")
            display.phase("copying")


def _live_line_that_fails() -> Any:
    class Fails:
        console = ClosedTerminal()

        def add_task(self, *arguments: object, **settings: object) -> int:
            return 0

        def start(self) -> None: ...

        def update(self, *arguments: object, **settings: object) -> None: ...

        def stop(self) -> None:
            raise OSError(5, "Input/output error")

    Fails.console.print = lambda *arguments, **settings: Fails.console.write("")  # type: ignore[attr-defined]
    return Fails()


def test_plain_lines_come_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock(monkeypatch)
    with ProgressDisplay("backup") as display:
        display.begin(two_tasks())
        for _ in range(100):
            clock.now_s += 0.2
            display.tasks_finished([], 0)

    assert len(capsys.readouterr().err.splitlines()) in (3, 4)


def test_terminal_has_a_live_line_with_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with ProgressDisplay("backup") as display:
        display.begin(two_tasks())
        finish_first(display)

    shown = terminal.getvalue()
    for part in ("backup", "75 %", "1/2 topics", "1/2 tasks", "MB/s", "records/s", "left"):
        assert part in shown
    assert "\x1b[" in shown  # Drawn over itself, not line after line.


def test_machines_are_shown_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock(monkeypatch)
    with ProgressDisplay("backup", is_quiet=True) as display:
        display.say("starting Spark")
        display.begin(two_tasks())
        clock.now_s += 60
        finish_first(display)

    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")
