"""Runs seeds on all cores, or replays one.

python -m tests.simulation.cluster --seeds 1000 [--first 1] [--processes 8]
python -m tests.simulation.cluster --seed 17        QUORATE_TRACE=1 prints every event, --log the nodes' log lines
"""

import argparse
import logging
import os
import sys
import traceback

from tests.simulation.cluster.campaign import run_many
from tests.simulation.cluster.faults import FAULTS
from tests.simulation.cluster.run import run_seed
from tests.simulation.cluster.shape import draw_shape


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.cluster", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, help="replay this one and show what happened")
    parser.add_argument("--log", action="store_true", help="with --seed: show the nodes' log lines")
    options = parser.parse_args()
    if options.seed is not None:
        return _replay(options.seed, shows_log=options.log)
    return run_many(range(options.first, options.first + options.seeds), options.processes)


def _replay(seed: int, *, shows_log: bool) -> int:
    if shows_log:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    print(draw_shape(seed, tuple(FAULTS)))
    try:
        print(run_seed(seed))
    except Exception:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
