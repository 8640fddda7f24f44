"""``quorate serve``: run one node in this process."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from quorate.cli.options import read_settings_file
from quorate.kernel.errors import QuorateError


def serve(
    config: Annotated[Path, typer.Option(help="The node's TOML file.")],
    until_stdin_closes: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run one node until it is told to stop (Ctrl-C or SIGTERM)."""
    if until_stdin_closes:
        threading.Thread(target=_stop_when_stdin_closes, daemon=True).start()
    run_from_file(config, lambda: None)


def run_from_file(path: Path, when_ready: Callable[[], None]) -> None:
    from quorate.broker.config import parse_node_config
    from quorate.broker.log_output import begin_log
    from quorate.broker.process import run_node
    from quorate.kernel.address import Address

    text = read_settings_file(path)
    try:
        node_config = parse_node_config(text)
    except QuorateError as error:
        raise QuorateError(f"{path}: {error}") from None
    begin_log(node_config.log)

    def on_ready(address: Address) -> None:
        print(f"ready: {address}", flush=True)
        when_ready()

    run_node(node_config, on_ready)


def _stop_when_stdin_closes() -> None:
    """Follow the parent process: its end of the pipe closes however it ends."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
