"""Transactions in whole clusters under faults: each is seen as one, or not at all, and none keeps readers waiting.

More seeds: ``python -m tests.simulation.transactions``.
"""

import os

import pytest

from tests.simulation.transactions.run import run_seed

SEEDS = range(1, 301 if os.environ.get("QUORATE_HEAVY") else 26)


@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_end_as_one_and_readers_see_nothing_else(seed: int) -> None:
    report = run_seed(seed)

    assert report.committed > 0
    assert report.shown > 0


def test_a_seed_gives_the_same_run_again() -> None:
    assert run_seed(3).digest == run_seed(3).digest
