"""What the commands that run on Spark share: its options, and stopping on Ctrl-C, SIGTERM or a closed terminal."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Annotated

import typer

from quorate.__main__ import INTERRUPTED_STATUS

MasterOption = Annotated[
    str | None, typer.Option("--master", help="Spark master: local[*], spark://host:7077, yarn …; wins over the file.")
]
RemoteOption = Annotated[
    str | None, typer.Option("--remote", help="Spark Connect server, sc://host:15002; wins over the file.")
]

_STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class OutputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[OutputFormat, typer.Option("--format", help="For people or for machines.")]


@contextmanager
def interruptible(explanation: str, *, status: int = INTERRUPTED_STATUS) -> Iterator[None]:
    """Ctrl-C, SIGTERM and the terminal's end stop what runs inside the block; the explanation says what that means."""
    # SIGINT even where it is ignored, as a shell has it for a command that it starts in the background.
    hung_up = getattr(signal, "SIGHUP", None)
    stopping = [number for number in _STOPPING if number != hung_up or signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, _interrupt) for number in stopping}
    try:
        yield
    except KeyboardInterrupt:
        with suppress(OSError):  # There may be no terminal any more.
            print(f"quorate: stopped; {explanation}", file=sys.stderr, flush=True)
        raise typer.Exit(status) from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: object) -> None:  # noqa: ARG001 - the signature of a signal handler
    raise KeyboardInterrupt
