"""The simulated replicas find bugs that take two faults at once: each of those put back is found (ADR 7)."""

import pytest

from tests.simulation.replication.cluster import ClusterShape
from tests.simulation.replication.injected_bugs import BUGS
from tests.simulation.replication.run import run_seed

#: With the fault that it takes drawn alone, one seed in three finds each of them.
_LAST_SEED = 25
_SHAPE = ClusterShape(nodes=5, lag_ms=400)
_FAULTS = {
    "watermark_does_not_wait_for_proposed_members": "lose_answers",
    "unsynced_records_promised_to_a_new_leader": "move_leaders",
}


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_put_back_is_found(name: str) -> None:
    with BUGS[name]():
        for seed in range(1, _LAST_SEED + 1):
            try:
                run_seed(seed, _SHAPE, [_FAULTS[name]])
            except AssertionError:
                return
    pytest.fail(f"{name} was not found by the seeds 1 to {_LAST_SEED}")


@pytest.mark.parametrize("fault", _FAULTS.values())
@pytest.mark.parametrize("seed", range(1, 3))
def test_what_finds_them_finds_nothing_where_there_is_none(fault: str, seed: int) -> None:
    assert run_seed(seed, _SHAPE, [fault]).acknowledged > 0
