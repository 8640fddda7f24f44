"""Stopping a command: Ctrl-C, SIGTERM and the end of the terminal.

While the command line is being loaded, which takes a moment, and later where nothing is under way that has to be ended
in good order, a stop ends the process at once: there is nothing to clean up, and a traceback would say nothing. Inside
of ``interruptible`` it raises KeyboardInterrupt.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

#: As shells have it for a command that Ctrl-C ended.
INTERRUPTED_STATUS = 130

#: After which a stop that Python has swallowed is raised again.
_AGAIN_S = 0.05

_Handler = Callable[[int, Any], Any] | int | None


def end_at_once_when_stopped() -> None:
    """From now on."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Not every system has all of them.
        # Who ignores the end of its terminal (nohup) has it ignored here, too.
        if number is not None and (name != "SIGHUP" or signal.getsignal(number) != signal.SIG_IGN):
            signal.signal(number, _end)


def _end(number: int, frame: object) -> None:  # noqa: ARG001 - the signature of a signal handler
    try:
        os.write(2, b"quorate: stopped\n")
    finally:
        os._exit(INTERRUPTED_STATUS)


@contextmanager
def interruptible(explanation: str, *, status: int = INTERRUPTED_STATUS) -> Iterator[None]:
    """A stop ends the command with the status when the block has ended; the explanation says what it means."""
    previous_hook = sys.unraisablehook
    previous = raise_when_stopped()
    try:
        yield
    except KeyboardInterrupt:
        import typer  # Loaded already by every command, and not yet where this module is loaded first.

        with suppress(OSError):  # There may be no terminal any more.
            print(f"quorate: stopped; {explanation}", file=sys.stderr, flush=True)
        raise typer.Exit(status) from None
    finally:
        sys.unraisablehook = previous_hook
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)  # There is nothing left for it to end.
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
    _raise_again_what_is_swallowed()
    return found


def _raise_again_what_is_swallowed() -> None:
    """An exception in a finalizer or in the callback of a weak reference, as each import has one, ends nothing."""
    if not hasattr(signal, "setitimer"):  # Not every system has it.
        return

    show = sys.unraisablehook

    def raise_again(unraisable: "sys.UnraisableHookArgs") -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        else:
            show(unraisable)

    signal.signal(signal.SIGALRM, _interrupt)
    sys.unraisablehook = raise_again


def _interrupt(number: int, frame: object) -> None:  # noqa: ARG001 - the signature of a signal handler
    raise KeyboardInterrupt
