"""Whole clusters under faults: every seed must pass all checkers. ``make sim SEEDS=…`` runs as many as asked."""

import pytest

from tests.simulation.cluster.campaign import replay_command
from tests.simulation.cluster.run import run_seed

_SEEDS = 300
_SEEDS_A_TEST = 10


@pytest.mark.parametrize("first_seed", range(1, _SEEDS + 1, _SEEDS_A_TEST))
def test_a_cluster_keeps_its_promises_through_faults(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + _SEEDS_A_TEST):
        try:
            run_seed(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}; replay with: {replay_command(seed)}") from error
