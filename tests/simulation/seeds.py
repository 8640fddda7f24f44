"""Runs the seeds of a simulation on all cores, or replays one of them."""

import argparse
import logging
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

Report = TypeVar("Report")

_PROGRESS_EVERY = 100


def main(package: str, run_seed: Callable[[int], Report], sum_up: Callable[[Sequence[Report]], str]) -> int:
    """``run_seed`` raises what it finds; ``sum_up`` says in words what happened in all the runs that went well."""
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, help="replay this one; QUORATE_TRACE=1 prints every event")
    parser.add_argument("--log", action="store_true", help="with --seed: show the nodes' log lines")
    options = parser.parse_args()
    if options.seed is not None:
        return _replay(run_seed, options.seed, shows_log=options.log)
    logging.disable(logging.CRITICAL)
    seeds = range(options.first, options.first + options.seeds)
    reports: list[Report] = []
    done, failed, processor_s = 0, 0, 0.0
    # A process that ends gives its memory back; worlds leave much behind that is only collected late.
    with multiprocessing.get_context("fork").Pool(options.processes, maxtasksperchild=5) as pool:
        for seed, report, found, seconds in pool.imap_unordered(partial(_attempt, run_seed), seeds, chunksize=4):
            processor_s += seconds
            done += 1
            if report is not None:
                reports.append(report)
            else:
                failed += 1
                print(f"seed {seed}: {found}\n    replay: .venv/bin/python -m {package} --seed {seed}", flush=True)
            if done % _PROGRESS_EVERY == 0:
                print(f"{done} of {len(seeds)} seeds, {failed} failed", flush=True)
    per_seed_s = processor_s / max(1, len(seeds))
    print(f"{len(seeds)} seeds, {failed} failed, {per_seed_s:.2f} s of processor time a seed; {sum_up(reports)}")
    return 1 if failed else 0


def _replay(run_seed: Callable[[int], Report], seed: int, *, shows_log: bool) -> int:
    logging.basicConfig(level=logging.INFO if shows_log else logging.CRITICAL, format="%(name)s %(message)s")
    try:
        print(run_seed(seed))
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _attempt(run_seed: Callable[[int], Report], seed: int) -> tuple[int, Report | None, str, float]:
    started = time.process_time()
    report, found = None, ""
    try:
        report = run_seed(seed)
    except Exception as error:
        found = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return seed, report, found, time.process_time() - started
