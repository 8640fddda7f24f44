"""``quorate serve``: run one node in this process."""

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from quorate.kernel.errors import QuorateError


def serve(
    config: Annotated[Path, typer.Option(help="The node's TOML file.")],
    until_stdin_closes: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run one node until it is told to stop (Ctrl-C or SIGTERM)."""
    from quorate.broker.config import parse_node_config
    from quorate.broker.process import run_node
    from quorate.kernel.address import Address

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True)
    try:
        node_config = parse_node_config(config.read_text())
    except OSError as error:
        raise QuorateError(f"cannot read {config}: {error.strerror}") from None
    except QuorateError as error:
        raise QuorateError(f"{config}: {error}") from None
    if until_stdin_closes:
        threading.Thread(target=_stop_when_stdin_closes, daemon=True).start()

    def on_ready(address: Address) -> None:
        print(f"ready: {address}", flush=True)

    run_node(node_config, on_ready)


def _stop_when_stdin_closes() -> None:
    """Follow the parent process: its end of the pipe closes however it ends."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
