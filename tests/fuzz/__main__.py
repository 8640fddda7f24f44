"""Hostile frames for real nodes: ``python -m tests.fuzz [client|peer|door] [--frames 1000000] [--seed 1] [--first 0]``.

The client port and the peer ports are sent requests. The door is what comes before them: TLS, logins, handshakes.

A failure says which frames it was, and how to send them again; ``--minimize`` looks for the fewest.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from tests.fuzz.minimize import Frames, minimize
from tests.fuzz.run import PORTS, FuzzFailed, Plan, Report, run_fuzz

_PROGRESS_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "port", nargs="?", choices=PORTS, help="all in turn unless named; then the door gets a tenth of the frames"
    )
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--first", type=int, default=0, help="the index of the first frame")
    parser.add_argument("--minimize", action="store_true", help="look for the fewest frames that still fail")
    parser.add_argument("--keep-going", action="store_true", help="do not end at the first line of a log that is bad")
    parser.add_argument("--wide", action="store_true", help="requests with thousands of elements too")
    options = parser.parse_args()
    for port in [each for each in PORTS if options.port in (None, each)]:
        plan = Plan(
            port=port,
            seed=options.seed,
            frames=options.frames if options.port or port != "door" else max(1, options.frames // 10),
            first=options.first,
            keeps_going=options.keep_going,
            is_wide=options.wide,
        )
        try:
            report = _run(plan, _Progress())
        except FuzzFailed as failure:
            print(f"{plan}: {failure}", file=sys.stderr)
            frames = Frames(failure.first, failure.frames)
            if options.minimize:
                frames = minimize(frames, partial(_fails, plan))
            print(replay_command(plan, frames), file=sys.stderr)
            return 1
        print(f"{plan}: {report}", flush=True)
    return 0


def replay_command(plan: Plan, frames: Frames) -> str:
    which = f"frames {frames.first} to {frames.first + frames.count - 1}"
    where = f"--seed {plan.seed} --first {frames.first} --frames {frames.count}"
    return f"{which}, alone: python -m tests.fuzz {plan.port} {where}{' --wide' if plan.is_wide else ''}"


def _fails(plan: Plan, frames: Frames) -> bool:
    """Whether these frames alone are enough; it may have taken more."""
    print(f"trying {frames.count} frames from {frames.first} on", flush=True)
    try:
        _run(msgspec.structs.replace(plan, first=frames.first, frames=frames.count, keeps_going=False), lambda _: None)
    except FuzzFailed:
        return True
    return False


def _run(plan: Plan, progress: Callable[[str], None]) -> Report:
    folder = tempfile.mkdtemp(prefix="quorate-fuzz-")
    try:
        report = run_fuzz(Path(folder), plan, progress=progress)
    except BaseException:
        print(f"{plan}: what the nodes wrote is kept in {folder}", file=sys.stderr)
        raise
    shutil.rmtree(folder)
    return report


class _Progress:
    """A line every few seconds, and at once what takes several."""

    def __init__(self) -> None:
        self._said_at = 0.0

    def __call__(self, text: str) -> None:
        if "\n" in text:
            print(text, flush=True)
        elif time.monotonic() - self._said_at >= _PROGRESS_S:
            self._said_at = time.monotonic()
            print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
