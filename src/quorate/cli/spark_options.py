"""What the commands that run on Spark share: its options, its start, and who reads what they print."""

from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.cli.options import parse_configs
from quorate.cli.progress_display import ProgressDisplay
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    from quorate.backup.config import SparkConfig
    from quorate.backup.spark.session.job import SparkDriver
    from quorate.backup.spark.session.settings import SparkSettings

MasterOption = Annotated[
    str | None, typer.Option("--master", help="Spark master: local[*], spark://host:7077, yarn …; wins over the file.")
]
RemoteOption = Annotated[
    str | None, typer.Option("--remote", help="Spark Connect server, sc://host:15002; wins over the file.")
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark's; may be repeated; wins over the file."),
]
KeepWarmOption = Annotated[
    str | None,
    typer.Option(
        "--keep-warm",
        metavar="DURATION",
        help="Share a Spark on this machine with the next commands: it stays for so long after the last one (10m); "
        "off: none; wins over the file.",
    ),
]


class OutputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[OutputFormat, typer.Option("--format", help="For people or for machines.")]


def spark_settings(
    master: str | None,
    remote: str | None,
    conf: list[str] | None,
    keep_warm: str | None,
    *,
    file: "SparkConfig | None" = None,
    rows_pass_jvm: bool = False,
) -> "SparkSettings":
    """What the command line says, and where it says nothing, the file."""
    from quorate.backup.config import parse_keep_warm_s
    from quorate.backup.spark.session.settings import SparkSettings

    given = parse_configs(conf, "--conf")
    of_file = {} if file is None else file.conf
    if file is not None:
        # Either of the two says where it runs: a file's server must not win over a master that was typed.
        remote = file.remote if remote is None and master is None else remote
        master = file.master if master is None else master
    of_file_or_typed = file.keep_warm if file is not None and keep_warm is None else keep_warm
    try:
        keep_warm_s = parse_keep_warm_s(of_file_or_typed)
    except QuorateError as error:  # Of the file it was checked when that was read.
        raise QuorateError(f"--keep-warm: {error}") from None
    return SparkSettings(
        master=master or SparkSettings().master,
        remote=remote,
        conf=of_file | given,
        rows_pass_jvm=rows_pass_jvm,
        keep_warm_s=keep_warm_s,
    )


def spark_when_needed(
    settings: "SparkSettings", name: str, display: ProgressDisplay, stack: ExitStack
) -> "Callable[[], SparkDriver]":
    """Spark is started by the first call, and not before; the stack ends it."""
    from quorate.backup.spark.session.spark_session import open_spark

    started: list[SparkDriver] = []

    def start_spark() -> "SparkDriver":
        if not started:
            display.phase("starting Spark")
            started.append(stack.enter_context(open_spark(settings, name, display.say)))
        return started[0]

    return start_spark
