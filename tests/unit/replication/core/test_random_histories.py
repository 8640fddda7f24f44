"""Whole histories of a partition from seeds: no promise of replication is broken, and all heals in the end.

A failure names its seed; ``QUORATE_REPLICATION_SEEDS=<first>:<count>`` runs others.
"""

import os

import pytest

from tests.unit.replication.core.cluster_model import ClusterModel

FIRST, COUNT = (int(part) for part in os.environ.get("QUORATE_REPLICATION_SEEDS", "0:300").split(":"))
STEPS = 350
GROUPS = 10


@pytest.mark.parametrize("group", range(GROUPS))
def test_no_history_breaks_a_promise(group: int) -> None:
    acknowledged = 0
    for seed in range(FIRST + group, FIRST + COUNT, GROUPS):
        model = ClusterModel(seed)
        try:
            model.run(STEPS)
        except Exception as failure:
            failure.add_note(f"QUORATE_REPLICATION_SEEDS={seed}:1 replays it")
            raise
        acknowledged += model.acknowledged
    if COUNT >= 100:
        assert acknowledged > COUNT // GROUPS  # The histories have something to lose.
