"""``quorate restore``: bring topics of a backup back into a cluster, on Spark."""

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from quorate.cli.interruption import interruptible
from quorate.cli.options import (
    COPY_TIMEOUT_S,
    CommandConfigOption,
    TimeoutOption,
    read_client_properties,
    read_settings_file,
)
from quorate.cli.progress_display import ProgressDisplay, format_bytes
from quorate.cli.spark import (
    ConfOption,
    FormatOption,
    KeepWarmOption,
    MasterOption,
    OutputFormat,
    RemoteOption,
    spark_settings,
    spark_when_needed,
)
from quorate.cli.terminal import counted

if TYPE_CHECKING:
    from quorate.backup.restore.config import RestoreConfig
    from quorate.backup.spark.restore.restore_run import RestoreReport, RestoreRun
    from quorate.backup.spark.session.settings import SparkSettings


def restore(  # noqa: PLR0917 - typer calls it by name
    config: Annotated[Path, typer.Option(help="The restore's YAML file.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, show what would be written, and stop.")
    ] = False,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    keep_warm: KeepWarmOption = None,
    timeout: TimeoutOption = COPY_TIMEOUT_S,
    output_format: FormatOption = OutputFormat.TEXT,
    command_config: CommandConfigOption = None,
) -> None:
    """Write topics of a backup into a cluster, each record exactly once, also when it is killed and run again."""
    from quorate.backup.spark.restore.target import target_client_config
    from quorate.client.first_contact import require_answer

    settings = read_restore_config(config, command_config)
    spark = spark_settings(master, remote, conf, keep_warm, file=settings.spark)
    with (
        interruptible("run the same restore again, and it goes on where it was"),
        ProgressDisplay("restore", is_quiet=output_format is OutputFormat.JSON) as display,
        contextlib.ExitStack() as stack,
    ):
        require_answer(target_client_config(settings), timeout, display.say)
        report = _open_run(settings, spark, display, stack).run(display, is_dry=dry_run)
    _show(report, output_format, is_dry=dry_run)


def read_restore_config(path: Path, command_config: Path | None = None) -> "RestoreConfig":
    from quorate.backup.restore.config import parse_restore_config

    properties = None if command_config is None else read_client_properties(command_config)
    return parse_restore_config(read_settings_file(path), os.environ, str(path), properties)


def _open_run(
    config: "RestoreConfig", spark: "SparkSettings", display: ProgressDisplay, stack: contextlib.ExitStack
) -> "RestoreRun":
    """Spark is started when there is something to read, and not before."""
    from quorate.backup.manifests.catalog import ManifestCatalog
    from quorate.backup.objects.opening import open_storage
    from quorate.backup.restore.ledger import RestoreLedger, restores_location
    from quorate.backup.spark.restore.restore_run import RestoreRun
    from quorate.backup.spark.restore.target import target_client_config

    start_spark = spark_when_needed(spark, f"quorate restore {config.backup_id}", display, stack)
    catalog = ManifestCatalog(open_storage(config.location), config.backup_id)
    ledger = RestoreLedger(open_storage(restores_location(config)))
    return RestoreRun(config, target_client_config(config), catalog, ledger, start_spark)


def _moment(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"


def _show(report: "RestoreReport", output_format: OutputFormat, *, is_dry: bool) -> None:
    if output_format is OutputFormat.JSON:
        print(msgspec.json.encode(report).decode(), flush=True)
        return
    for topic in report.topics:
        renamed = "" if topic.source == topic.name else f" as {topic.name}"
        notes = "".join(
            f", {count:,} {what}"
            for count, what in (
                (topic.missing_partitions, "partitions are not in the backup"),
                (topic.lost_offsets, "offsets were not captured"),
                (topic.unfinished_transactions, "unfinished transactions are left out"),
            )
            if count
        )
        print(
            f"{topic.source}{renamed}: {counted(topic.partition_count, 'partition')}, "
            f"{counted(topic.record_count, 'record')}, "
            f"{format_bytes(topic.batch_bytes)}{notes}"
        )
    for warning in report.warnings:
        print(f"warning: {warning}")
    where = " at their original offsets" if report.preserve_offsets else ""
    summary = (
        f"manifest {report.manifest_number} of backup {report.backup_id}: {counted(len(report.topics), 'topic')}, "
        f"{counted(report.record_count, 'record')}{where}, {format_bytes(report.batch_bytes)}"
    )
    if report.finished_ms is not None:
        when = _moment(report.finished_ms)
        print(f"restore {report.restore_id} is finished since {when}, nothing was written: {summary}")
        print(
            "to restore again, delete its topics first, or restore under other names (restore.topic_mapping)",
            flush=True,
        )
        return
    if is_dry:
        print(f"dry run, nothing was written: {summary}", flush=True)
        return
    rate = report.written_bytes / max(report.seconds, 0.001) / 1e6
    resumed = " (resumed)" if report.is_resumed else ""
    print(
        f"restore {report.restore_id}{resumed}: {summary}; {counted(report.written_records, 'record')} written "
        f"in {report.seconds:.1f} s ({rate:.1f} MB/s), leaders followed {counted(report.leaders_followed, 'time')}",
        flush=True,
    )
