"""Chaos for a while: ``python -m tests.chaos [--seconds 300] [--seed 1] [--durability fsync|os]``."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.run import run_chaos

_ROUND_S = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--durability", choices=["fsync", "os"], default=None, help="both in turn unless named")
    options = parser.parse_args()
    left_s, seed = options.seconds, options.seed
    while left_s > 0:
        durability = options.durability or ("fsync", "os")[seed % 2]
        with tempfile.TemporaryDirectory(prefix="quorate-chaos-") as folder:
            report = run_chaos(Path(folder), seed, min(left_s, _ROUND_S), durability=durability)
        print(f"seed {seed} {durability}: {report}", flush=True)
        left_s -= _ROUND_S
        seed += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
