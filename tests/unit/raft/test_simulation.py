"""Random faults by the seed. To replay one: QUORATE_RAFT_SEEDS=17 (or 0-20000) with this file."""

import os

import pytest

from tests.unit.raft.chaos import Chaos

DURATION_MS = 4_000
SEEDS_PER_TEST = 25


def seed_ranges() -> list[range]:
    wanted = os.environ.get("QUORATE_RAFT_SEEDS", "0-200")
    first, _, last = wanted.partition("-")
    end = int(last) if last else int(first) + 1
    return [range(start, min(start + SEEDS_PER_TEST, end)) for start in range(int(first), end, SEEDS_PER_TEST)]


@pytest.mark.parametrize("seeds", seed_ranges(), ids=lambda seeds: f"seeds-{seeds.start}-{seeds.stop - 1}")
def test_nothing_committed_is_lost_whatever_fails(seeds: range) -> None:
    for seed in seeds:
        try:
            Chaos(seed).run(DURATION_MS)
        except BaseException as error:
            error.add_note(f"replay with QUORATE_RAFT_SEEDS={seed}")
            raise
