"""What users see while a job runs: a live line on a terminal, plain lines elsewhere."""

import io

import pytest

from quorate.cli.progress_display import ProgressDisplay
from quorate.pipeline.run_progress import RunProgress
from quorate.pipeline.task_runner import FinishedTask

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
