"""What the commands that run on Spark share: its options, its start, and who reads what they print.

``quorate spark`` shows and ends the Sparks that are kept warm on this machine for its user.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from quorate.cli.options import parse_configs
from quorate.cli.progress_display import ProgressDisplay, format_bytes, format_seconds
from quorate.cli.terminal import counted, print_table
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    from quorate.backup.config import SparkConfig
    from quorate.backup.spark.session.job import SparkDriver
    from quorate.backup.spark.session.settings import SparkSettings
    from quorate.backup.spark.warm.command import Visit

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


_STOP_TIMEOUT_S = 10.0
_POLL_S = 0.02

app = typer.Typer(help="Look after the Sparks that --keep-warm has left for the next commands.", no_args_is_help=True)


@app.command()
def status(output_format: FormatOption = OutputFormat.TEXT) -> None:
    """Show the warm Sparks of this user: what each is doing, and when it ends by itself."""
    rows = [_row(visit) for visit in _visits()]
    if output_format is OutputFormat.JSON:
        print(msgspec.json.encode(rows).decode())
        return
    if rows:
        print_table(
            ["spark", "pid", "state", "master", "up for", "jobs", "commands", "ends in", "memory"],
            [
                [
                    row["name"],
                    row["pid"] or "-",
                    row["state"],
                    row["master"] or "-",
                    format_seconds(row["age_s"]),
                    row["jobs"],
                    row["commands"],
                    "-" if row["ends_in_s"] is None else format_seconds(row["ends_in_s"]),
                    format_bytes(row["memory_bytes"]),
                ]
                for row in rows
            ],
        )
    print(f"{counted(len(rows), 'warm Spark')}")


@app.command()
def stop() -> None:
    """End the warm Sparks of this user. A command that is using one goes on with a Spark of its own."""
    from quorate.backup.spark.warm.command import end
    from quorate.backup.spark.warm.place import sweep

    stopped = _visits()
    for visit in stopped:
        end(visit)
    if not _have_ended(stopped):
        for visit in stopped:
            visit.place.kill()
        if not _have_ended(stopped):
            raise QuorateError("a warm Spark has not ended: quorate spark status names its process")
    sweep()
    print(f"{counted(len(stopped), 'warm Spark')} stopped")


def _have_ended(visits: "list[Visit]") -> bool:
    give_up_s = time.monotonic() + _STOP_TIMEOUT_S
    while any(not visit.place.is_empty() for visit in visits):
        if time.monotonic() > give_up_s:
            return False
        time.sleep(_POLL_S)
    return True


def _visits() -> "list[Visit]":
    from quorate.backup.spark.warm.command import visit_all

    return visit_all()


def _row(visit: "Visit") -> dict[str, Any]:
    shown = visit.status
    return {
        "name": visit.place.name,
        "pid": None if shown is None else shown.pid,
        "state": "hangs" if shown is None else shown.state,
        "master": None if shown is None else shown.master,
        "age_s": 0.0 if shown is None else shown.age_s,
        "jobs": 0 if shown is None else shown.jobs,
        "commands": 0 if shown is None else shown.commands,
        "ends_in_s": None if shown is None else shown.ends_in_s,
        "memory_bytes": visit.memory_bytes,
    }
