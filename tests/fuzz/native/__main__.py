"""Fuzz the native module: ``python -m tests.fuzz.native [target ...] [--inputs 10000000] [--seed 1] [--first 0]``.

Unless targets are named, the tests of the whole module run under sanitizers, too. A failure says which input it was:
``--first N --inputs 1`` with the same seed runs it alone.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.native.corpus import SEEDS
from tests.fuzz.native.run import FuzzFailed, build, missing, run
from tests.fuzz.native.wrappers import run_tests


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.native", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="target", help=f"all unless named: {', '.join(SEEDS)}")
    parser.add_argument("--inputs", type=int, default=10_000_000, help="for each target")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--first", type=int, default=0, help="the index of the first input")
    options = parser.parse_args()
    unknown = set(options.targets) - SEEDS.keys()
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    if reason := missing():
        print(f"The native module was not fuzzed: {reason}", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory(prefix="quorate-fuzz-native-") as folder:
        for target in options.targets or SEEDS:
            try:
                report = run(build(target, Path(folder)), seed=options.seed, first=options.first, inputs=options.inputs)
            except FuzzFailed as failure:
                print(f"native {target} seed {options.seed}: {failure}", file=sys.stderr)
                return 1
            print(f"native {target} seed {options.seed}: {report}", flush=True)
        if not options.targets:
            print(f"native, tests of the whole module: {run_tests(Path(folder))}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
