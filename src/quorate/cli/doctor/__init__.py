"""``quorate cluster doctor``: what each node says, what each node does when tried, and where the two disagree."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.cli.interruption import interruptible
from quorate.cli.options import BootstrapOption, CommandConfigOption, client_config
from quorate.cli.spark import FormatOption, OutputFormat

if TYPE_CHECKING:
    from quorate.cli.doctor.examination import Examination
    from quorate.cli.doctor.findings import Report

#: Nodes that are asked at the same time.
_THREADS = 16
_CONNECT_TIMEOUT_MS = 3_000
_REQUEST_TIMEOUT_MS = 10_000


def doctor(  # noqa: PLR0917 - typer calls it by name
    bootstrap_server: BootstrapOption = None,
    write_probe: Annotated[
        bool,
        typer.Option(
            "--write-probe/--no-write-probe", help="Send each node a batch with a wrong checksum, which none may store."
        ),
    ] = True,
    settle: Annotated[float, typer.Option(min=0.0, help="Seconds that a change may take to reach all nodes.")] = 3.0,
    watch: Annotated[bool, typer.Option("--watch", help="Keep looking until Ctrl-C, and tell what changes.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two examinations of --watch.")] = 5.0,
    output_format: FormatOption = OutputFormat.TEXT,
    command_config: CommandConfigOption = None,
) -> None:
    """Ask every node what it says, try the claims, name every disagreement. Exit status 0 means no error.

    Works on any Kafka cluster. Nothing is written.
    """
    from quorate.cli.doctor.examination import Examination
    from quorate.client.cluster import Cluster

    config = client_config(
        bootstrap_server,
        command_config,
        client_id="quorate-doctor",
        connect_timeout_ms=_CONNECT_TIMEOUT_MS,
        request_timeout_ms=_REQUEST_TIMEOUT_MS,
        retry_timeout_ms=_REQUEST_TIMEOUT_MS,
    )
    cluster = Cluster(config)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="doctor") as executor:
        try:
            examination = Examination(cluster, executor, settle_s=settle, writes=write_probe)
            errors = _watch(examination, every, output_format) if watch else _once(examination, output_format)
        finally:
            cluster.close()  # First, so that no thread goes on waiting for an answer.
    if errors:
        raise typer.Exit(1)


def _once(examination: "Examination", output_format: OutputFormat) -> int:
    report = examination.examine()
    _show(None, report, output_format)
    return report.errors


def _watch(examination: "Examination", every_s: float, output_format: OutputFormat) -> int:
    """Until Ctrl-C; returns the errors of the worst report."""
    worst, before = 0, None
    try:
        with interruptible("the exit status is that of the worst seen"):
            while True:
                report = _examine(examination)
                worst = max(worst, report.errors)
                _show(before, report, output_format)
                before = report
                time.sleep(every_s)
    except typer.Exit:
        return worst


def _examine(examination: "Examination") -> "Report":
    """As a report also where no node answers: who watches wants to see them come back."""
    from quorate.cli.doctor.findings import nobody_answers
    from quorate.client.errors import NoBrokerAnswered

    try:
        return examination.examine()
    except NoBrokerAnswered as error:
        return nobody_answers(str(error))


def _show(before: "Report | None", report: "Report", output_format: OutputFormat) -> None:
    from quorate.cli.doctor.findings import change_lines, json_line

    changes = list(change_lines(before, report))
    if output_format is OutputFormat.JSON and changes:
        print(json_line(report), flush=True)
    elif changes:
        print("\n".join(changes), flush=True)
