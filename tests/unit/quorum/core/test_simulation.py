"""Random faults by the seed. To replay one: QUORATE_RAFT_SEEDS=17 (or 0-20000) with this file."""

import os
from unittest.mock import patch

import pytest

from quorate.quorum.core import roles
from quorate.quorum.core.messages import VoteRequest
from quorate.quorum.core.state import RaftState
from tests.unit.quorum.core.chaos import Chaos

DURATION_MS = 4_000
SEEDS_PER_TEST = 25
#: One seed in forty finds them.
SEEDS_THAT_FIND_EARLY_VOTES = range(25, 125)


def seed_ranges() -> list[range]:
    wanted = os.environ.get("QUORATE_RAFT_SEEDS", "0-200")
    first, _, last = wanted.partition("-")
    end = int(last) if last else int(first) + 1
    return [range(start, min(start + SEEDS_PER_TEST, end)) for start in range(int(first), end, SEEDS_PER_TEST)]


@pytest.mark.parametrize("seeds", seed_ranges(), ids=lambda seeds: f"seeds-{seeds.start}-{seeds.stop - 1}")
@pytest.mark.parametrize("damages_disks", [False, True], ids=["sound-disks", "damaged-disks"])
def test_nothing_committed_is_lost_whatever_fails(seeds: range, damages_disks: bool) -> None:
    for seed in seeds:
        try:
            Chaos(seed, damages_disks=damages_disks).run(DURATION_MS)
        except BaseException as error:
            error.add_note(f"replay with QUORATE_RAFT_SEEDS={seed}")
            raise


def test_a_damaged_node_that_votes_too_early_is_found() -> None:
    """The harm that is done to disks is such that it matters whether a node waits for its log."""
    may_vote = roles._may_vote_for

    def early(state: RaftState, request: VoteRequest) -> bool:
        with patch.object(state, "lost_log", None):
            return may_vote(state, request)

    def run_all() -> None:
        for seed in SEEDS_THAT_FIND_EARLY_VOTES:
            Chaos(seed, damages_disks=True).run(DURATION_MS)

    with patch.object(roles, "_may_vote_for", early), pytest.raises(AssertionError, match=r"a leader (has|lacks)"):
        run_all()
