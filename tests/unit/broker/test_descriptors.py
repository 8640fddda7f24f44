"""The limit of open files: what a process does with it, and when its operator hears of it."""

import asyncio
import subprocess
import sys

from quorate.broker.descriptors import EXHAUSTED, LOW, PLENTY, DescriptorWatch, budget_of
from quorate.kernel.conditions import Conditions, Severity
from quorate.kernel.ids import NodeId


def in_a_process(soft: int, hard: int, program: str) -> str:
    """What the program prints; limits that were lowered cannot be had back in this process."""
    limits = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
    return subprocess.run(
        [sys.executable, "-c", limits + program], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    program = (
        "from quorate.broker.descriptors import raise_limit\n"
        "print(raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))"
    )

    assert in_a_process(100, 1000, program) == "1000 (1000, 1000)"
    assert in_a_process(1000, 1000, program) == "1000 (1000, 1000)"


def test_the_last_descriptors_are_there_for_files_alone() -> None:
    program = """
import os
from quorate.broker.descriptors import SpareDescriptors
spare = SpareDescriptors(128)
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError as error:
    print(error.errno, max(taken))
with spare.lifted():
    print(os.dup(0))
try:
    os.dup(0)
except OSError as error:
    print(error.errno)
"""
    assert in_a_process(128, 128, program).split() == ["24", "95", "96", "24"]


def test_a_low_limit_is_information_and_running_out_is_a_problem_for_a_while() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        conditions = Conditions()
        watch = DescriptorWatch(NodeId(1), budget_of(256, 20), loop)
        watch.report_to(conditions)
        assert [(each.kind, each.severity) for each in conditions] == [(LOW, Severity.INFORMATION)]

        watch.ran_out_in_any_thread()
        await asyncio.sleep(0)
        watch.ran_out("connection")
        found = conditions.find(EXHAUSTED)
        assert found is not None
        assert found.severity is Severity.PROBLEM
        assert "the limit of open files is 256" in found.sentence

        watch.passed()
        assert conditions.find(EXHAUSTED) is None
        watch.stop()

    asyncio.run(run())


def test_a_limit_that_is_high_enough_is_not_mentioned() -> None:
    async def run() -> None:
        conditions = Conditions()
        DescriptorWatch(NodeId(1), budget_of(PLENTY, 20), asyncio.get_running_loop()).report_to(conditions)
        assert list(conditions) == []

    asyncio.run(run())
