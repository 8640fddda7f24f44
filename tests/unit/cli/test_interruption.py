"""A stop is never lost, wherever in the command it comes."""

import os
import signal
from threading import Event

import pytest
import typer

from quorate.cli.interruption import INTERRUPTED_STATUS, interruptible


class _StoppedInItsFinalizer:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def test_a_stop_that_comes_in_a_finalizer_ends_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        _run_a_command()

    assert ended.value.exit_code == INTERRUPTED_STATUS
    assert capsys.readouterr().err == "quorate: stopped; nothing was done\n"


def _run_a_command() -> None:
    with interruptible("nothing was done"):
        _StoppedInItsFinalizer()
        Event().wait(60)
