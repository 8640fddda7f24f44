"""What the commands that run on Spark share: its options, and stopping on Ctrl-C or SIGTERM."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer

MasterOption = Annotated[
    str | None, typer.Option("--master", help="Spark master: local[*], spark://host:7077, yarn …; wins over the file.")
]
RemoteOption = Annotated[
    str | None, typer.Option("--remote", help="Spark Connect server, sc://host:15002; wins over the file.")
]

INTERRUPTED_STATUS = 130


class OutputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[OutputFormat, typer.Option("--format", help="For people or for machines.")]


@contextmanager
def interruptible(explanation: str, *, status: int = INTERRUPTED_STATUS) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop what runs inside the block; the explanation says what that means."""
    # SIGINT too: a shell that starts a command in the background has it ignored.
    previous = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        print(f"quorate: stopped; {explanation}", file=sys.stderr, flush=True)
        raise typer.Exit(status) from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: object) -> None:  # noqa: ARG001 - the signature of a signal handler
    raise KeyboardInterrupt
