"""Large blocks that were freed go back to the system."""

import platform
import subprocess
import sys

import pytest

FREED_BLOCKS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from quorate.broker.memory import return_large_blocks

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

def use(size):
    kept = bytearray(b"x") * size
    small = bytes(100_000)
    del kept
    return small

if sys.argv[1] == "return":
    return_large_blocks()
with ThreadPoolExecutor(4) as workers:
    kept = list(workers.map(use, [size << 20 for size in (10, 30, 16, 24, 12, 28, 20, 31) * 8]))
    print(resident_mib())
"""


def resident_mib(mode: str) -> int:
    run = subprocess.run([sys.executable, "-c", FREED_BLOCKS, mode], capture_output=True, check=True, text=True)
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has its own rules")
def test_blocks_of_many_megabytes_are_not_kept() -> None:
    assert resident_mib("return") < resident_mib("keep")
