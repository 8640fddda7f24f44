"""Runs seeds on all cores, or replays one.

python -m tests.simulation.replication --seeds 1000 [--first 1] [--processes 8]
python -m tests.simulation.replication --seed 17        QUORATE_TRACE=1 prints every event, --log the nodes' log lines
"""

import argparse
import logging
import multiprocessing
import os
import sys
import time
import traceback

from tests.simulation.replication.run import Report, run_seed


def replay_command(seed: int) -> str:
    return f".venv/bin/python -m tests.simulation.replication --seed {seed}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.replication", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, help="replay this one and show what happened")
    parser.add_argument("--log", action="store_true", help="with --seed: show the nodes' log lines")
    options = parser.parse_args()
    if options.seed is not None:
        return _replay(options.seed, shows_log=options.log)
    logging.disable(logging.CRITICAL)
    return _run_many(range(options.first, options.first + options.seeds), options.processes)


def _replay(seed: int, *, shows_log: bool) -> int:
    logging.basicConfig(level=logging.INFO if shows_log else logging.CRITICAL, format="%(name)s %(message)s")
    try:
        print(run_seed(seed))
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _run_many(seeds: range, processes: int) -> int:
    failed, reports, processor_s = 0, [], 0.0
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        for seed, outcome, seconds in pool.imap_unordered(_attempt, seeds, chunksize=4):
            processor_s += seconds
            if isinstance(outcome, Report):
                reports.append(outcome)
            else:
                failed += 1
                print(f"seed {seed}: {outcome}\n    replay: {replay_command(seed)}", flush=True)
    print(
        f"{len(seeds)} seeds, {failed} failed, {processor_s / len(seeds):.2f} s of processor time a seed; "
        f"{sum(report.acknowledged for report in reports)} records acknowledged, "
        f"{sum(report.read for report in reports)} read, {sum(report.elections for report in reports)} elections"
    )
    return 1 if failed else 0


def _attempt(seed: int) -> tuple[int, Report | str, float]:
    started = time.process_time()
    try:
        outcome: Report | str = run_seed(seed)
    except Exception as error:
        outcome = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return seed, outcome, time.process_time() - started


if __name__ == "__main__":
    sys.exit(main())
