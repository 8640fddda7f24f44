"""Runs seeds on all cores, or replays one.

python -m tests.simulation.replication --seeds 1000 [--first 1] [--processes 8]
python -m tests.simulation.replication --seed 17        QUORATE_TRACE=1 prints every event, --log the nodes' log lines
"""

import sys
from collections.abc import Sequence

from tests.simulation.replication.run import Report, run_seed
from tests.simulation.seeds import main


def sum_up(reports: Sequence[Report]) -> str:
    return (
        f"{sum(report.acknowledged for report in reports)} records acknowledged, "
        f"{sum(report.read for report in reports)} read, {sum(report.elections for report in reports)} elections"
    )


if __name__ == "__main__":
    sys.exit(main("tests.simulation.replication", run_seed, sum_up))
