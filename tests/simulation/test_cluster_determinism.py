"""A seed of the cluster simulator is one run, whatever the hash seed and the memory layout."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_RUN = "from tests.simulation.cluster.run import run_seed; print(run_seed({seed}))"


def _in_process(seed: int, hash_seed: int) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(sys.path)}
    padding = f"kept = [object() for _ in range({hash_seed * 1013})]; "
    command = [sys.executable, "-c", padding + _RUN.format(seed=seed)]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("seed", [4, 122])
def test_a_seed_gives_the_same_trace_under_two_hash_seeds(seed: int) -> None:
    assert _in_process(seed, 1) == _in_process(seed, 77)
