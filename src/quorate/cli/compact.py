"""``quorate compact``: merge the small segments of a backup into larger ones, on Spark."""

import contextlib
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from quorate.cli.interruption import interruptible
from quorate.cli.progress_display import ProgressDisplay, format_bytes
from quorate.cli.spark_options import (
    ConfOption,
    FormatOption,
    MasterOption,
    OutputFormat,
    RemoteOption,
    spark_settings,
    spark_when_needed,
)
from quorate.cli.terminal import counted
from quorate.kernel.errors import QuorateError
from quorate.kernel.settings import parse_size

if TYPE_CHECKING:
    from quorate.backup.spark.upkeep.compact_run import CompactReport


def compact(  # noqa: PLR0917 - typer calls it by name
    storage: Annotated[str, typer.Option(help="Where the backups are: file:///…, s3://…, gs://…, az://…")],
    backup_id: Annotated[str, typer.Option(help="Which backup.")],
    min_segment_bytes: Annotated[
        str, typer.Option(metavar="SIZE", help="Segments smaller than this are merged with their neighbours.")
    ] = "64MiB",
    max_segment_bytes: Annotated[str, typer.Option(metavar="SIZE", help="No merged segment is larger.")] = "128MiB",
    endpoint: Annotated[str | None, typer.Option(help="Address of an S3-compatible storage.")] = None,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    output_format: FormatOption = OutputFormat.TEXT,
) -> None:
    """Merge small segments into larger ones, as a new manifest. What older manifests name stays until it is pruned."""
    from quorate.backup.config import check_backup_id
    from quorate.backup.manifests.catalog import ManifestCatalog
    from quorate.backup.objects.opening import open_storage
    from quorate.backup.objects.storage import StorageLocation
    from quorate.backup.spark.upkeep.compact_run import CompactRun

    check_backup_id(backup_id)
    smallest_bytes = _size("--min-segment-bytes", min_segment_bytes)
    largest_bytes = _size("--max-segment-bytes", max_segment_bytes)
    if largest_bytes < smallest_bytes:
        raise QuorateError("--max-segment-bytes is smaller than --min-segment-bytes: nothing could be merged")
    location = StorageLocation(storage, endpoint).below(backup_id)
    catalog = ManifestCatalog(open_storage(location), backup_id)
    settings = spark_settings(master, remote, conf)
    with (
        interruptible("what was merged counts once its manifest is committed, and the backup is whole either way"),
        ProgressDisplay("compact", is_quiet=output_format is OutputFormat.JSON) as display,
        contextlib.ExitStack() as stack,
    ):
        start_spark = spark_when_needed(settings, f"quorate compact {backup_id}", display, stack)
        run = CompactRun(location, catalog, start_spark)
        report = run.run(display, min_segment_bytes=smallest_bytes, max_segment_bytes=largest_bytes)
    _show(report, output_format)
    if report.faults:
        raise typer.Exit(1)


def _size(option: str, text: str) -> int:
    try:
        size_bytes = parse_size(text)
    except QuorateError as error:
        raise QuorateError(f"{option}: {error}") from None
    if size_bytes < 1:
        raise QuorateError(f"{option} must be above 0")
    return size_bytes


def _show(report: "CompactReport", output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        print(msgspec.json.encode(report).decode(), flush=True)
        return
    for fault in report.faults:
        print(f"not merged: {fault}")
    name = f"backup {report.backup_id}: manifest {report.manifest_number}"
    if report.compacted_from is None:
        print(f"{name} has no small segments that could be merged", flush=True)
        return
    print(
        f"{name} has {counted(report.segments_after, 'segment')} in place of {report.segments_before} of manifest "
        f"{report.compacted_from} ({format_bytes(report.size_bytes)}) in {report.seconds:.1f} s",
        flush=True,
    )
