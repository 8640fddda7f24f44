"""Blocks that a stop by a signal does not cut in two: it is answered behind them. No new process is lost sight of."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals reach only the main thread; in any other one there is nothing to hold back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handled = [number for number in _STOPPING if callable(signal.getsignal(number))]
    previous = {number: signal.signal(number, lambda number, _: came.append(number)) for number in handled}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for number in came[:1]:
            signal.raise_signal(number)
