"""CPU time and memory of a process with its descendants, those that have ended included."""

import os
import subprocess
import sys

from benchmarks.contenders import process_tree

BURN = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
BURNING_CHILD = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {BURN!r}])
print("ended", flush=True)
sys.stdin.read()
"""


def test_time_of_a_child_that_has_ended_still_counts() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BURNING_CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ended\n"
        seconds = process_tree.cpu_seconds(parent.pid)
        assert parent.stdin is not None
        parent.stdin.close()

    assert seconds >= 0.2


def test_memory_of_a_running_child_counts() -> None:
    alone = process_tree.resident_bytes(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", "x = b'x' * 200_000_000\nprint('ready', flush=True)\ninput()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        together = process_tree.resident_bytes(os.getpid())
        assert child.stdin is not None
        child.stdin.close()

    assert together - alone >= 200_000_000


def test_process_that_is_gone_takes_nothing() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    assert process_tree.cpu_seconds(ended.pid) == 0
    assert process_tree.resident_bytes(ended.pid) == 0
