"""Chaos for a while: ``python -m tests.chaos [--seconds 300] [--seed 1] [--durability fsync|os]``."""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.cluster import FIVE_NODE_IDS, NODE_IDS, Wires
from tests.chaos.rotation import rotate_under_load
from tests.chaos.run import Report, Round, run_chaos

_ROUND_S = 60.0
_ROTATIONS = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--durability", choices=["fsync", "os"], default=None, help="both in turn unless named")
    options = parser.parse_args()
    left_s, seed = options.seconds, options.seed
    reports: list[Report] = []
    while left_s > 0:
        durability = options.durability or ("fsync", "os")[seed % 2]
        chaos = Round(
            seed=seed,
            seconds=min(left_s, _ROUND_S),
            durability=durability,
            node_ids=(NODE_IDS, FIVE_NODE_IDS)[seed // 2 % 2],
            wires=list(Wires)[seed % len(Wires)],
            has_certificates=bool(seed // 3 % 2),
        )
        report = _run(chaos)
        print(f"{chaos}: {report}", flush=True)
        reports.append(report)
        left_s -= _ROUND_S
        seed += 1
    _print_sum(reports)
    _rotate(seed)
    return 0


def _run(chaos: Round) -> Report:
    with _folder(str(chaos)) as folder:
        return run_chaos(folder, chaos)


def _rotate(seed: int) -> None:
    """Without other faults: then nobody is to notice it."""
    with _folder("rotation") as folder:
        report = rotate_under_load(folder, has_certificates=True, seed=seed, times=_ROTATIONS)
    print(f"secrets, certificates and authorities replaced {_ROTATIONS} times: {report}")


@contextmanager
def _folder(what: str) -> Iterator[Path]:
    folder = tempfile.mkdtemp(prefix="quorate-chaos-")
    try:
        yield Path(folder)
    except BaseException:
        print(f"{what}: what the nodes wrote is kept in {folder}", file=sys.stderr)
        raise
    shutil.rmtree(folder)


def _print_sum(reports: list[Report]) -> None:
    faults = sum((Counter(report.faults) for report in reports), Counter[str]())
    print(
        f"{len(reports)} rounds, {faults.total()} faults, "
        f"{sum(report.acknowledged for report in reports)} records acknowledged "
        f"({sum(report.acknowledged_to_java or 0 for report in reports)} to the Java client), "
        f"{sum(report.read for report in reports)} read, nothing lost, doubled, reordered or skipped"
    )
    went_back = sum(report.went_back for report in reports)
    if went_back:
        print(f"  {went_back:4} times a consumer went back to where an epoch begins, see docs/compatibility.md")
    for name, count in sorted(faults.items()):
        print(f"  {count:4} {name}")


if __name__ == "__main__":
    sys.exit(main())
