"""Mutates a store again and again and lets commands loose on it; stops at the first that fails in a wrong way."""

import gc
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType

import msgspec

from quorate.kernel.errors import QuorateError
from tests.hostile_stores.mutations import mutate
from tests.hostile_stores.operations import OPERATIONS
from tests.hostile_stores.seed_store import SeedStore, told

_WARM_UP = 300
_LOOK_OUTSIDE_EVERY = 500
_HANG_S = 30
_PAGE_BYTES = resource.getpagesize()


class Report(msgspec.Struct, kw_only=True):
    mutations: int = 0
    outcomes: Counter[str]
    slowest_s: float = 0.0  # Of processor time.
    slowest: str = ""
    warm_rss_bytes: int = 0
    peak_rss_bytes: int = 0

    @property
    def growth_bytes(self) -> int:
        return self.peak_rss_bytes - self.warm_rss_bytes


class Found(AssertionError):
    """A mutation that something does not withstand."""


def fuzz(folder: Path, *, seed: int, mutations: int, first: int = 0) -> Report:
    """Each mutation has a seed of its own, so that it can be repeated alone."""
    store = SeedStore(folder)
    report = Report(outcomes=Counter())
    for index in range(first, first + mutations):
        random = Random(f"{seed}/{index}")
        where = random.choice(list(OPERATIONS))
        what = mutate(store, where, random)
        operation = random.choice(OPERATIONS[where])
        name = f"--seed {seed} --first {index} --mutations 1 ({what}; {operation.__name__})"
        started = time.process_time()
        with _watched(name):
            try:
                operation(store, random)
                report.outcomes["nothing noticed"] += 1
            except QuorateError as error:
                if faults := told(error):
                    raise Found(f"{name}: {faults[0]}") from error
                report.outcomes[type(error).__name__] += 1
            except Exception as error:
                raise Found(f"{name}: {type(error).__name__}: {error}") from error
            store.reset()
        _measure(report, name, time.process_time() - started)
        if index % _LOOK_OUTSIDE_EVERY == 0:
            store.assert_outside_is_untouched()
    store.assert_outside_is_untouched()
    return report


def _measure(report: Report, name: str, seconds: float) -> None:
    report.mutations += 1
    if seconds > report.slowest_s:
        report.slowest_s, report.slowest = seconds, name
    if report.mutations == _WARM_UP:
        gc.collect()
        report.warm_rss_bytes = _rss_bytes()
        # From here on the kernel's own peak counts, which also sees what was freed again in between.
        Path("/proc/self/clear_refs").write_text("5")
    report.peak_rss_bytes = max(report.peak_rss_bytes, _peak_bytes()) if report.mutations > _WARM_UP else _rss_bytes()


def _rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def _peak_bytes() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


@contextmanager
def _watched(name: str) -> Iterator[None]:
    """What spins or waits for ever is ended, and is a finding."""

    def ring(signum: int, frame: FrameType | None) -> None:
        raise Found(f"{name}: no end after {_HANG_S} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(_HANG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
