"""The simulator finds bugs: each of those put back is found within a handful of seeds."""

import pytest

from tests.simulation.cluster.injected_bugs import BUGS
from tests.simulation.cluster.run import run_seed

#: The last seed that is tried, with some room over the first that finds the bug (docs/adr says which did).
_LAST_SEED = 40


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_put_back_is_found(name: str) -> None:
    with BUGS[name]():
        for seed in range(1, _LAST_SEED + 1):
            try:
                run_seed(seed)
            except AssertionError:
                return
    pytest.fail(f"{name} was not found by the seeds 1 to {_LAST_SEED}")
