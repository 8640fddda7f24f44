"""``quorate export``: records of a backup or of a live cluster as a table of Parquet files, on Spark."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from quorate.cli.backup import read_backup_config
from quorate.cli.interruption import interruptible
from quorate.cli.options import COPY_TIMEOUT_S, CommandConfigOption, TimeoutOption, read_client_properties
from quorate.cli.progress_display import ProgressDisplay, format_bytes
from quorate.cli.spark import (
    ConfOption,
    FormatOption,
    KeepWarmOption,
    MasterOption,
    OutputFormat,
    RemoteOption,
    spark_settings,
)
from quorate.cli.terminal import counted
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    from quorate.backup.config import BackupConfig
    from quorate.backup.spark.data_source.export import ExportReport
    from quorate.client.security_config import SecurityConfig


def export(  # noqa: PLR0917 - typer calls it by name
    output: Annotated[str, typer.Option(help="The table's folder, or a URL that Spark can write to.")],
    table_format: Annotated[str, typer.Option("--to", help="parquet, delta or iceberg.")] = "parquet",
    storage: Annotated[str | None, typer.Option(help="Read a backup: file:///…, s3://…, gs://…, az://…")] = None,
    backup_id: Annotated[str | None, typer.Option(help="Which backup of the storage.")] = None,
    bootstrap_servers: Annotated[str | None, typer.Option(help="Read a live cluster: host:port,…")] = None,
    config: Annotated[
        Path | None, typer.Option(help="Read the backup that this YAML file describes; with --live, its source.")
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Read the source of --config, not its backup.")] = False,
    topics: Annotated[str | None, typer.Option(help="Names or globs, with commas; all unless given.")] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="Any option of the data source as name=value, as start_time=2026-01-31.")
    ] = None,
    partition_by_topic: Annotated[bool, typer.Option(help="A folder for each topic.")] = True,
    compression: Annotated[str, typer.Option(help="Of the Parquet files: zstd, snappy, gzip, lz4 or none.")] = "zstd",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is in the folder.")] = False,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    keep_warm: KeepWarmOption = None,
    timeout: TimeoutOption = COPY_TIMEOUT_S,
    output_format: FormatOption = OutputFormat.TEXT,
    command_config: CommandConfigOption = None,
) -> None:
    """Write records as a table: one row a record, with topic, partition, offset, time, key, value and headers."""
    from quorate.backup.spark.data_source import export as exports
    from quorate.backup.spark.session.spark_session import open_spark
    from quorate.client.first_contact import require_answer

    if table_format not in list(exports.TableFormat):
        raise QuorateError(f"--to {table_format}: choose one of {', '.join(exports.TableFormat)}")
    settings = None if config is None else read_backup_config(config, command_config if live else None)
    file = None if settings is None else settings.spark
    spark = spark_settings(master, remote, conf, keep_warm, file=file, rows_pass_jvm=True)
    given = {"backup": storage, "backup_id": backup_id, "bootstrap_servers": bootstrap_servers, "topics": topics}
    request = exports.ExportRequest(
        options=options_of_config(settings, live=live)
        | (options_of_cluster(command_config) if settings is None and command_config is not None else {})
        | {name: value for name, value in given.items() if value is not None}
        | dict(map(_name_and_value, option or [])),
        output=output,
        table_format=exports.TableFormat(table_format),
        partition_by_topic=partition_by_topic,
        overwrite=overwrite,
        compression=compression,
    )
    exports.check_request(request)
    with (
        interruptible("the table is not finished; the same command begins anew"),
        ProgressDisplay("export", is_quiet=output_format is OutputFormat.JSON) as display,
    ):
        cluster = exports.live_cluster(request)
        if cluster is not None:
            require_answer(cluster, timeout, display.say)
        display.phase("starting Spark")
        with open_spark(spark, "quorate export", display.say) as session:
            report = exports.run_export(session, request, _TaskDisplay(display))
    _show(report, output_format)


class _TaskDisplay:
    """Spark says how many tasks of a query there are and how many are done; the display wants to know first."""

    def __init__(self, display: ProgressDisplay) -> None:
        self._display = display
        self._task_count = 0

    def tasks_counted(self, finished_count: int, task_count: int) -> None:
        from quorate.backup.spark.run_progress import RunProgress

        if not task_count:
            return  # Still being planned.
        if task_count != self._task_count:
            self._task_count = task_count
            self._display.say(f"{counted(task_count, 'task')} to write")
            self._display.begin(RunProgress([0] * task_count, [frozenset()] * task_count, 0))
        self._display.tasks_finished([], finished_count)


def options_of_config(config: "BackupConfig | None", *, live: bool) -> dict[str, str]:
    """What the data source is told to read what a backup's config file names: the backup, or its source."""
    if config is None:
        if live:
            raise QuorateError("--live needs --config: it reads the source that the file names")
        return {}
    if not live:
        endpoint = config.storage.endpoint
        options = {"backup": config.storage.url, "backup_id": config.backup_id}
        return options if endpoint is None else options | {"endpoint": endpoint}
    source = config.source
    options = {
        "bootstrap_servers": ",".join(source.bootstrap_servers),
        "topics": ",".join(source.topics.include),
        "request_timeout_ms": str(source.request_timeout_ms),
    }
    if source.topics.exclude:
        options["exclude_topics"] = ",".join(source.topics.exclude)
    if source.rack is not None:
        options["rack"] = source.rack
    return options | _login_options(source.security)


def options_of_cluster(command_config: Path) -> dict[str, str]:
    properties = read_client_properties(command_config)
    servers = {} if properties.bootstrap_servers is None else {"bootstrap_servers": properties.bootstrap_servers}
    return servers | _login_options(properties.security)


def _login_options(security: "SecurityConfig") -> dict[str, str]:
    given = {name: value for name, value in msgspec.to_builtins(security).items() if value is not None}
    given["security_protocol"] = given.pop("protocol")
    return {name: str(value) for name, value in given.items()}


def _name_and_value(text: str) -> tuple[str, str]:
    from quorate.client.security_config import SECRETS

    name, separator, value = text.partition("=")
    if not separator:
        raise QuorateError(f"--option {text!r} is not of the form name=value")
    if name.strip().lower() in SECRETS:
        raise QuorateError(f"--option {name.strip()}: whoever may see processes reads it there; name --command-config")
    return name.strip(), value


def _show(report: "ExportReport", output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        print(msgspec.json.encode(report).decode(), flush=True)
        return
    size = "" if report.size_bytes is None else f", {format_bytes(report.size_bytes)}"
    print(
        f"{counted(report.record_count, 'record')}{size} as {report.table_format} in {report.output} "
        f"in {report.seconds:.1f} s ({report.record_count / max(report.seconds, 0.001):,.0f} records/s)",
        flush=True,
    )
