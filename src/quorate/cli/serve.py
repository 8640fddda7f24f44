"""``quorate serve``: run one node in this process."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from quorate.cli.options import read_settings_file
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    from quorate.broker.first_user import FirstUser

FirstUserOption = Annotated[
    str | None,
    typer.Option(
        "--first-user",
        metavar="NAME",
        help="A SCRAM user to make where the cluster has none yet: who can make the others.",
    ),
]
FirstUserPasswordOption = Annotated[
    Path | None,
    typer.Option(
        "--first-user-password-file", metavar="FILE", help="Holds that user's password, for its owner alone (0600)."
    ),
]


def serve(
    config: Annotated[Path, typer.Option(help="The node's TOML file.")],
    first_user: FirstUserOption = None,
    first_user_password_file: FirstUserPasswordOption = None,
    until_stdin_closes: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run one node until it is told to stop (Ctrl-C or SIGTERM)."""
    user = parse_first_user_options(first_user, first_user_password_file)
    if until_stdin_closes:
        threading.Thread(target=_stop_when_stdin_closes, daemon=True).start()
    run_from_file(config, lambda: None, user)


def parse_first_user_options(name: str | None, password_file: Path | None) -> "FirstUser | None":
    """Of ``serve`` and ``up``. The password itself is in a file: what is on a command line, ``ps`` shows to all."""
    from quorate.broker.first_user import FirstUser

    if name is None and password_file is None:
        return None
    if name is None or password_file is None:
        raise QuorateError("name both --first-user and --first-user-password-file, or none of them")
    try:
        return FirstUser(name=name, password_file=str(password_file.absolute()))
    except QuorateError as error:
        raise QuorateError(f"--first-user: {str(error).removeprefix('[first_user] name: ')}") from None


def run_from_file(path: Path, when_ready: Callable[[], None], first_user: "FirstUser | None" = None) -> None:
    from quorate.broker.config import parse_node_config
    from quorate.broker.log_output import begin_audit_log, begin_log
    from quorate.broker.process import run_node
    from quorate.kernel.address import Address

    text = read_settings_file(path)
    try:
        node_config = parse_node_config(text)
    except QuorateError as error:
        raise QuorateError(f"{path}: {error}") from None
    if first_user is not None:
        if node_config.first_user is not None:
            raise QuorateError(f"{path} has a table [first_user]: name the first user there, or with --first-user")
        node_config = msgspec.structs.replace(node_config, first_user=first_user)
    begin_log(node_config.log)
    begin_audit_log(node_config.audit)

    def on_ready(address: Address) -> None:
        print(f"ready: {address}", flush=True)
        when_ready()

    run_node(node_config, on_ready)


def _stop_when_stdin_closes() -> None:
    """Follow the parent process: its end of the pipe closes however it ends."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
