"""Runs seeds on all cores, or replays one.

python -m tests.simulation.transactions --seeds 1000 [--first 1] [--processes 8]
python -m tests.simulation.transactions --seed 17        QUORATE_TRACE=1 prints every event, --log the nodes' log lines
"""

import sys
from collections.abc import Sequence

from tests.simulation.seeds import main
from tests.simulation.transactions.run import Report, run_seed


def sum_up(reports: Sequence[Report]) -> str:
    return (
        f"{sum(one.transactions for one in reports)} transactions, {sum(one.committed for one in reports)} committed, "
        f"{sum(one.aborted for one in reports)} aborted, {sum(one.overtaken for one in reports)} overtaken, "
        f"{sum(one.shown for one in reports)} records shown"
    )


if __name__ == "__main__":
    sys.exit(main("tests.simulation.transactions", run_seed, sum_up))
