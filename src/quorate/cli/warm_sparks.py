"""``quorate spark``: the Sparks that are kept warm on this machine for one user, shown and ended."""

import time
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from quorate.cli.progress_display import format_bytes, format_seconds
from quorate.cli.spark_options import FormatOption, OutputFormat
from quorate.cli.terminal import counted, print_table
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    from quorate.backup.spark.warm.visits import Visit

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
    from quorate.backup.spark.warm.place import sweep
    from quorate.backup.spark.warm.visits import end

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
    from quorate.backup.spark.warm.visits import visit_all

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
