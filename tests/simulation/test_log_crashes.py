"""A partition log survives power cuts: thousands of them, at random points of random work, each replayable by its seed.

``QUORATE_CRASH_SEEDS`` runs more seeds than the default, ``QUORATE_CRASH_FIRST_SEED`` starts at another one.
"""

import os

from tests.simulation.log_workload import LogWorkload

_POWER_CUTS_PER_SEED = 10
_FIRST_SEED = int(os.environ.get("QUORATE_CRASH_FIRST_SEED", "1"))
_SEEDS = int(os.environ.get("QUORATE_CRASH_SEEDS", "220"))


def test_a_log_keeps_every_synced_batch_and_no_bad_one_over_power_cuts() -> None:
    for seed in range(_FIRST_SEED, _FIRST_SEED + _SEEDS):
        try:
            LogWorkload(seed).run(_POWER_CUTS_PER_SEED)
        except Exception as error:
            raise AssertionError(
                f"seed {seed}: {error!r}; replay with: QUORATE_CRASH_FIRST_SEED={seed} QUORATE_CRASH_SEEDS=1 "
                f"python -m pytest {__name__.replace('.', '/')}.py"
            ) from error
