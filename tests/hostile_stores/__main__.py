"""Hostile stores for a while: ``python -m tests.hostile_stores [--mutations 100000] [--seed 1] [--first 0]``."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.hostile_stores.run import Found, fuzz

_MIB = 1024 * 1024
MAX_GROWTH_BYTES = 64 * _MIB


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile_stores", description=__doc__)
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--first", type=int, default=0, help="the number of the first mutation, to repeat one alone")
    options = parser.parse_args()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        started = time.monotonic()
        try:
            report = fuzz(Path(folder), seed=options.seed, mutations=options.mutations, first=options.first)
        except Found as found:
            cause = found.__cause__
            print(f"found: python -m tests.hostile_stores {found}")
            if cause is not None:
                raise cause from None
            return 1
    seconds = time.monotonic() - started
    print(f"seed {options.seed}: {report.mutations} mutations in {seconds:.0f} s, nothing outside was touched")
    for outcome, count in report.outcomes.most_common():
        print(f"{count:9,} {outcome}")
    print(f"slowest: {report.slowest_s:.2f} s of processor time, {report.slowest}")
    print(f"memory: {report.warm_rss_bytes // _MIB} MiB when warm, {report.growth_bytes // _MIB} MiB more at the peak")
    return 1 if report.growth_bytes > MAX_GROWTH_BYTES else 0


if __name__ == "__main__":
    sys.exit(main())
