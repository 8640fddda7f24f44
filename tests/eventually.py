"""Waiting for something that happens elsewhere: poll a condition until it holds or a generous deadline passes."""

import time
from collections.abc import Callable
from typing import TypeVar

Outcome = TypeVar("Outcome")
POLL_INTERVAL_S = 0.02


def eventually(condition: Callable[[], Outcome | None], what: str, within_s: float = 60) -> Outcome:
    """The first truthy outcome of the condition. After the deadline the test fails, naming what it waited for."""
    deadline = time.monotonic() + within_s
    while True:
        outcome = condition()
        if outcome:
            return outcome
        if time.monotonic() >= deadline:
            raise AssertionError(f"after {within_s} s still waiting for {what}; last seen: {outcome!r}")
        time.sleep(POLL_INTERVAL_S)
