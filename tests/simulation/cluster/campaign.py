"""Many seeds on many cores: progress, what was found, and how each finding is replayed."""

import multiprocessing
import re
import time
from collections import Counter

from tests.simulation.cluster.run import run_seed

_PROGRESS_EVERY_S = 5.0


def replay_command(seed: int) -> str:
    return f".venv/bin/python -m tests.simulation.cluster --seed {seed}"


def run_many(seeds: range, processes: int) -> int:
    failed: dict[int, str] = {}
    done, longest_recovery_s, processor_s, told_at = 0, 0.0, 0.0, time.monotonic()
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        for seed, found, recovery_s, seconds in pool.imap_unordered(_attempt, seeds, chunksize=4):
            done += 1
            processor_s += seconds
            longest_recovery_s = max(longest_recovery_s, recovery_s)
            if found is not None:
                failed[seed] = found
                print(f"seed {seed}: {found}\n    replay: {replay_command(seed)}", flush=True)
            if time.monotonic() - told_at > _PROGRESS_EVERY_S:
                told_at = time.monotonic()
                print(f"{done} of {len(seeds)} seeds, {len(failed)} failed", flush=True)
    per_seed_s = processor_s / max(1, done)
    print(
        f"{done} seeds, {len(failed)} failed, {per_seed_s:.2f} s of processor time a seed, "
        f"longest recovery {longest_recovery_s:.1f} virtual s"
    )
    for text, count in Counter(_kind(found) for found in failed.values()).most_common():
        print(f"  {count} x {text}")
    return 1 if failed else 0


def _kind(found: str) -> str:
    """Without what differs from seed to seed: the seed, the time, numbers."""
    return re.sub(r"[0-9a-f-]{30,}|\d+", "…", found.rsplit("host scenario:", maxsplit=1)[-1])[:100]


def _attempt(seed: int) -> tuple[int, str | None, float, float]:
    """The seed, what was found, how long the cluster took to recover, and the processor time."""
    started = time.process_time()
    try:
        report = run_seed(seed)
    except Exception as error:
        return seed, f"{type(error).__name__}: {str(error).splitlines()[0]}", 0.0, time.process_time() - started
    return seed, None, report.recovery_s, time.process_time() - started
