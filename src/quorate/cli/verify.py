"""``quorate verify``: read a backup's objects and compare them with its manifest."""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from quorate.cli.progress_display import ProgressDisplay, format_bytes
from quorate.cli.spark_options import FormatOption, MasterOption, OutputFormat, RemoteOption, interruptible
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    from quorate.backup.manifest import Manifest
    from quorate.backup.storage_url import StorageLocation
    from quorate.pipeline.verification import VerificationReport


def verify(  # noqa: PLR0917 - typer calls it by name
    storage: Annotated[str, typer.Option(help="Where the backups are: file:///…, s3://…, gs://…, az://…")],
    backup_id: Annotated[str, typer.Option(help="Which backup.")],
    deep: Annotated[
        bool, typer.Option("--deep", help="Also open every frame and check every batch, on Spark.")
    ] = False,
    endpoint: Annotated[str | None, typer.Option(help="Address of an S3-compatible storage.")] = None,
    master: MasterOption = None,
    remote: RemoteOption = None,
    output_format: FormatOption = OutputFormat.TEXT,
) -> None:
    """Check that every object of the newest manifest is there and is what was written."""
    from quorate.backup.config import check_backup_id
    from quorate.backup.manifest_catalog import ManifestCatalog
    from quorate.backup.storage import open_storage
    from quorate.backup.storage_url import StorageLocation
    from quorate.pipeline.verification import segments_of, verify_quickly

    check_backup_id(backup_id)
    location = StorageLocation(storage, endpoint).below(backup_id)
    opened = open_storage(location)
    manifest = ManifestCatalog(opened, backup_id).latest()
    if manifest is None:
        raise QuorateError(f"there is no backup {backup_id} in {storage}")
    with (
        interruptible("not everything was verified"),
        ProgressDisplay("verify", is_quiet=output_format is OutputFormat.JSON) as display,
    ):
        if deep:
            report = _verify_deeply(location, manifest, display, master, remote)
        else:
            _begin(display, manifest, [entry.size_bytes for entry in segments_of(manifest)])
            report = verify_quickly(opened, manifest, display)
    _show(report, output_format)
    if report.damages:
        raise typer.Exit(1)


def _verify_deeply(
    location: "StorageLocation",
    manifest: "Manifest",
    display: ProgressDisplay,
    master: str | None,
    remote: str | None,
) -> "VerificationReport":
    from quorate.pipeline.spark_session import open_spark
    from quorate.pipeline.spark_settings import SparkSettings
    from quorate.pipeline.verification import pack_segments, segments_of, verify_on_spark

    settings = SparkSettings(remote=remote) if master is None else SparkSettings(master=master, remote=remote)
    display.say("starting Spark")
    with open_spark(settings, f"quorate verify {manifest.backup_id}", display.say) as spark:
        tasks = pack_segments(segments_of(manifest))
        _begin(display, manifest, [sum(entry.size_bytes for entry in task) for task in tasks])
        return verify_on_spark(spark, location, manifest, display)


def _begin(display: ProgressDisplay, manifest: "Manifest", task_bytes: list[int]) -> None:
    from quorate.pipeline.run_progress import RunProgress

    display.say(f"{len(manifest.object_names())} objects of manifest {manifest.number}")
    display.begin(RunProgress(task_bytes, [frozenset()] * len(task_bytes), 0))


def _show(report: "VerificationReport", output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        print(msgspec.json.encode(report).decode(), flush=True)
        return
    for damage in report.damages:
        print(f"damaged: {damage.message}")
    kind = "every batch" if report.deep else "sizes and SHA-256"
    print(
        f"backup {report.backup_id}, manifest {report.manifest_number}: {report.objects} objects, "
        f"{report.record_count:,} records, {format_bytes(report.size_bytes)} verified ({kind}), "
        f"{len(report.damages)} damaged",
        flush=True,
    )
