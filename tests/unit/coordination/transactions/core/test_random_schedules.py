"""Random runs with faults of all kinds; see ``world`` for what must never happen in them."""

import os

import pytest

from tests.unit.coordination.transactions.core.world import run

SEEDS = 2_000 if os.environ.get("QUORATE_HEAVY") else 40


@pytest.mark.parametrize("version", [0, 2])
def test_transactions_end_as_one_whatever_fails(version: int) -> None:
    attempts = [attempt for seed in range(SEEDS) for attempt in run(seed, version=version, steps=1_500).attempts]

    # The runs are worth something: many transactions were committed, aborted, and cut short.
    assert sum(attempt.answered is True for attempt in attempts) > SEEDS
    assert sum(attempt.answered is False for attempt in attempts) > SEEDS // 2
    assert sum(attempt.answered is None for attempt in attempts) > SEEDS // 2
