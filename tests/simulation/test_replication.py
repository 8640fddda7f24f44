"""Whole clusters under faults: what was acknowledged stays, what was read stays, one offset holds one record.

More seeds: ``python -m tests.simulation.replication``.
"""

import pytest

from tests.simulation.replication.run import run_seed

SEEDS = range(1, 301)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_acknowledged_record_is_lost_changed_or_doubled(seed: int) -> None:
    assert run_seed(seed).acknowledged > 0


def test_readers_read_and_a_seed_gives_the_same_run_again() -> None:
    first = run_seed(3)

    assert first.read > 0  # In a short run a reader may meet nothing but a partition that nobody writes to.
    assert run_seed(3).digest == first.digest
