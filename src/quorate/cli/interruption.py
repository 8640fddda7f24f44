"""Stopping a command while something is under way: Ctrl-C, SIGTERM and the end of the terminal raise KeyboardInterrupt.

Outside of such a block the command ends at once, as ``quorate.__main__`` has it.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer

from quorate.__main__ import INTERRUPTED_STATUS

_Handler = Callable[[int, Any], Any] | int | None


@contextmanager
def interruptible(explanation: str, *, status: int = INTERRUPTED_STATUS) -> Iterator[None]:
    """A stop ends the command with the status when the block has ended; the explanation says what it means."""
    previous = raise_when_stopped()
    try:
        yield
    except KeyboardInterrupt:
        with suppress(OSError):  # There may be no terminal any more.
            print(f"quorate: stopped; {explanation}", file=sys.stderr, flush=True)
        raise typer.Exit(status) from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def raise_when_stopped() -> dict[int, _Handler]:
    """From now on; returns what was done before.

    SIGINT even where it is ignored, as a shell has it for a command that it starts in the background; but SIGHUP is
    left ignored where it is, as ``nohup`` has it.
    """
    found: dict[int, _Handler] = {signal.SIGINT: signal.getsignal(signal.SIGINT)}
    found[signal.SIGTERM] = signal.getsignal(signal.SIGTERM)
    hung_up = getattr(signal, "SIGHUP", None)  # Not every system has it.
    if hung_up is not None and signal.getsignal(hung_up) != signal.SIG_IGN:
        found[hung_up] = signal.getsignal(hung_up)
    for number in found:
        signal.signal(number, _interrupt)
    return found


def _interrupt(number: int, frame: object) -> None:  # noqa: ARG001 - the signature of a signal handler
    raise KeyboardInterrupt
