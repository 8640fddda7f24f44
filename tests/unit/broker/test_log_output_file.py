"""A log file is replaced when it is full, and hurts nobody when it cannot be written."""

import errno
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quorate.broker.log_output import LogFile
from quorate.kernel.errors import QuorateError

LIMIT = 1000


def log_of(path: Path, kept_files: int = 2) -> LogFile:
    handler = LogFile(path, LIMIT, kept_files)
    handler.setFormatter(logging.Formatter("%(message)s"))
    return handler


def say(handler: LogFile, message: str) -> None:
    handler.handle(logging.LogRecord("x", logging.INFO, "", 0, message, None, None))


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_log_that_never_ends_keeps_so_many_files_of_so_many_bytes(tmp_path: Path) -> None:
    handler = log_of(tmp_path / "node.log")
    for number in range(1000):
        say(handler, f"line {number}")
    handler.close()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["node.log", "node.log.1", "node.log.2"]
    assert all(path.stat().st_size <= LIMIT for path in tmp_path.iterdir())
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())
    kept = [line for name in ("node.log.2", "node.log.1", "node.log") for line in lines_of(tmp_path / name)]
    assert kept == [f"line {number}" for number in range(1000 - len(kept), 1000)]


def test_without_kept_files_there_is_one(tmp_path: Path) -> None:
    handler = log_of(tmp_path / "node.log", kept_files=0)
    for number in range(1000):
        say(handler, f"line {number}")
    handler.close()

    assert [path.name for path in tmp_path.iterdir()] == ["node.log"]
    assert lines_of(tmp_path / "node.log")[-1] == "line 999"


def test_a_line_longer_than_a_file_gets_one_of_its_own(tmp_path: Path) -> None:
    handler = log_of(tmp_path / "node.log")
    for message in ("a", "b" * 2 * LIMIT, "c"):
        say(handler, message)
    handler.close()

    assert lines_of(tmp_path / "node.log.1") == ["b" * 2 * LIMIT]


def test_the_next_start_goes_on_with_the_file_that_is_there(tmp_path: Path) -> None:
    for message in ("first", "second"):
        handler = log_of(tmp_path / "node.log")
        say(handler, message)
        handler.close()

    assert lines_of(tmp_path / "node.log") == ["first", "second"]


def test_a_full_disk_costs_lines_that_are_counted_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    handler = log_of(tmp_path / "node.log")
    say(handler, "before")
    write = os.write

    def take_three_bytes(descriptor: int, data: bytes) -> int:
        return write(descriptor, data[:3])

    def take_nothing(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.write", take_three_bytes)
    say(handler, "half of it")
    monkeypatch.setattr("os.write", take_nothing)
    for _ in range(10):
        say(handler, "nothing of it")
    monkeypatch.setattr("os.write", write)
    say(handler, "after")
    handler.close()

    assert lines_of(tmp_path / "node.log") == ["before", "hal", "log lines lost count=11", "after"]
    assert capfd.readouterr() == ("", "")


def test_where_no_file_can_be_made_the_one_that_is_there_is_written_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = log_of(tmp_path / "node.log")
    say(handler, "first")

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("os.open", refuse)
        for number in range(200):
            say(handler, f"line {number}")
    for number in range(200, 300):
        say(handler, f"line {number}")
    handler.close()

    assert lines_of(tmp_path / "node.log")[-1] == "line 299"
    assert all(path.stat().st_size <= 2 * LIMIT for path in tmp_path.iterdir())


def test_what_cannot_be_made_a_line_is_counted_too(tmp_path: Path) -> None:
    handler = log_of(tmp_path / "node.log")
    handler.handle(logging.LogRecord("x", logging.INFO, "", 0, "%d", ("no number",), None))
    say(handler, "after")
    handler.close()

    assert lines_of(tmp_path / "node.log") == ["log lines lost count=1", "after"]


def test_what_else_goes_to_standard_error_stays_with_the_newest_file(tmp_path: Path) -> None:
    program = f"""
import logging, os
from pathlib import Path
from quorate.broker.log_output import LogFile
path = Path({str(tmp_path / "node.log")!r})
os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
handler = LogFile(path, 1000, 1)
for number in range(100):
    handler.handle(logging.LogRecord("x", logging.INFO, "", 0, "x" * 30, None, None))
os.write(2, b"from elsewhere\\n")
"""
    subprocess.run([sys.executable, "-c", program], check=True)

    assert lines_of(tmp_path / "node.log")[-1] == "from elsewhere"


def test_a_file_that_cannot_be_made_is_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(QuorateError, match=r"the log file .*/missing/node\.log cannot be written: No such file"):
        log_of(tmp_path / "missing" / "node.log")
