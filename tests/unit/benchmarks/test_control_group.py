"""CPU time of processes that nobody waits for, as Spark's Python workers are."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.contenders import process_tree
from benchmarks.contenders.control_group import ControlGroup, make_control_group

BURNT_S = 0.3
# As Spark's worker daemon: children that it does not wait for. It tells when one has ended, which the pipe shows.
DAEMON = f"""
import os, signal, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
reading, writing = os.pipe()
if os.fork() == 0:
    while time.process_time() < {BURNT_S}: pass
    os._exit(0)
os.close(writing)
os.read(reading, 1)
try:
    os.wait()
except ChildProcessError:
    print("ended", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    group = make_control_group()
    if group is None:
        pytest.skip("this user may make no control groups here")
    yield group
    group.remove()


def test_time_of_a_process_counts_that_nobody_waited_for(group: ControlGroup) -> None:
    before_s = group.cpu_seconds()
    command = group.joining([sys.executable, "-c", DAEMON])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == b"ended\n"
        known_to_proc_s = process_tree.cpu_seconds(daemon.pid)
        counted_s = group.cpu_seconds() - before_s
        assert daemon.stdin is not None
        daemon.stdin.close()

    assert counted_s >= BURNT_S
    assert counted_s - known_to_proc_s >= BURNT_S / 2, "/proc knows of such processes: the group is not needed"


def test_a_group_is_gone_when_its_processes_are(group: ControlGroup) -> None:
    command = group.joining([sys.executable, "-c", "input()"])
    with subprocess.Popen(command, stdin=subprocess.PIPE):
        pass
    group.remove()

    with pytest.raises(FileNotFoundError):
        group.cpu_seconds()


def test_groups_of_killed_runs_are_removed_and_those_of_others_stay(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left_behind, of_others = (tmp_path / f"quorate-benchmark-{pid}-3" for pid in (ended.pid, os.getpid()))
    for folder in (left_behind, of_others):
        folder.mkdir()
    (tmp_path / "mounts").write_text(f"30 20 0:1 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "own").write_text("0::/\n")

    made = make_control_group(tmp_path / "mounts", tmp_path / "own")

    assert made is not None
    assert not left_behind.exists()
    assert of_others.exists()


@pytest.mark.parametrize(
    ("mounts", "own_groups"),
    [
        ("30 20 0:1 / {folder}/missing rw - cgroup2 cgroup2 rw\n", "0::/\n"),
        ("30 20 0:1 / {folder} rw - cgroup cgroup rw,cpu\n", "1:cpu:/\n"),
        ("30 20 0:1 /elsewhere {folder} rw - cgroup2 cgroup2 rw\n", "0::/here\n"),
    ],
)
def test_without_control_groups_there_is_none(tmp_path: Path, mounts: str, own_groups: str) -> None:
    (tmp_path / "mounts").write_text(mounts.format(folder=tmp_path))
    (tmp_path / "own").write_text(own_groups)

    assert make_control_group(tmp_path / "mounts", tmp_path / "own") is None
