"""A node survives power cuts between any append, sync and acknowledgement; each run is replayable by its seed.

``QUORATE_CRASH_SEEDS`` runs more seeds than the default, ``QUORATE_CRASH_FIRST_SEED`` starts at another one.
"""

import asyncio
import os

from tests.simulation.node_workload import NodeWorkload

_LIVES_PER_SEED = 5
_FIRST_SEED = int(os.environ.get("QUORATE_CRASH_FIRST_SEED", "1"))
_SEEDS = int(os.environ.get("QUORATE_CRASH_SEEDS", "100"))


def test_a_node_keeps_every_acknowledged_record_over_power_cuts() -> None:
    for seed in range(_FIRST_SEED, _FIRST_SEED + _SEEDS):
        try:
            asyncio.run(NodeWorkload(seed).run(_LIVES_PER_SEED))
        except Exception as error:
            raise AssertionError(
                f"seed {seed}: {error!r}; replay with: QUORATE_CRASH_FIRST_SEED={seed} QUORATE_CRASH_SEEDS=1 "
                f"python -m pytest {__name__.replace('.', '/')}.py"
            ) from error
