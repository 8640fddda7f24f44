"""Asking before something is taken away that cannot be brought back."""

import sys
from typing import Annotated

import typer

from quorate.kernel.errors import QuorateError

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, *, yes: bool) -> None:
    """Returns if the user agrees. A script has nobody to ask: it must say so beforehand."""
    if yes:
        return
    if not _can_answer():
        raise QuorateError(f"this asks first ({question}), and there is no terminal to answer at: add --yes")
    if not typer.confirm(question):
        print("nothing was changed")
        raise typer.Exit(1)


def _can_answer() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
