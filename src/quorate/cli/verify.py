"""``quorate verify``: read a backup's objects and compare them with its manifests."""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from quorate.cli.interruption import interruptible
from quorate.cli.progress_display import ProgressDisplay, format_bytes
from quorate.cli.spark_options import ConfOption, FormatOption, MasterOption, OutputFormat, RemoteOption, spark_settings
from quorate.cli.terminal import counted
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    from quorate.backup.objects.storage import StorageLocation
    from quorate.backup.spark.session.settings import SparkSettings
    from quorate.backup.spark.upkeep.verification import Inventory, VerificationReport


def verify(  # noqa: PLR0917 - typer calls it by name
    storage: Annotated[str, typer.Option(help="Where the backups are: file:///…, s3://…, gs://…, az://…")],
    backup_id: Annotated[str, typer.Option(help="Which backup.")],
    deep: Annotated[
        bool, typer.Option("--deep", help="Also open every frame and check every batch, on Spark.")
    ] = False,
    newest_only: Annotated[
        bool, typer.Option("--newest-only", help="Leave out older manifests, and what only they name.")
    ] = False,
    endpoint: Annotated[str | None, typer.Option(help="Address of an S3-compatible storage.")] = None,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    output_format: FormatOption = OutputFormat.TEXT,
) -> None:
    """Check that every object of a backup is there and is what was written."""
    from quorate.backup.config import check_backup_id
    from quorate.backup.manifests.catalog import ManifestCatalog
    from quorate.backup.objects.opening import open_storage
    from quorate.backup.objects.storage import StorageLocation
    from quorate.backup.restore.ledger import RestoreLedger, restores_below
    from quorate.backup.retention.holds import HoldLedger, holds_location
    from quorate.backup.spark.upkeep.verification import damages_beside, take_inventory, verify_quickly, without_pruned

    check_backup_id(backup_id)
    root = StorageLocation(storage, endpoint)
    location = root.below(backup_id)
    opened = open_storage(location)
    catalog = ManifestCatalog(opened, backup_id)
    inventory = take_inventory(catalog, newest_only=newest_only)
    if inventory is None:
        raise QuorateError(f"there is no backup {backup_id} in {storage}")
    holds = HoldLedger(open_storage(holds_location(root, backup_id)), backup_id)
    restores = RestoreLedger(open_storage(restores_below(root, backup_id)))
    beside = damages_beside(holds, restores, backup_id)
    inventory = msgspec.structs.replace(inventory, damages=[*inventory.damages, *beside])
    with (
        interruptible("not everything was verified"),
        ProgressDisplay("verify", is_quiet=output_format is OutputFormat.JSON) as display,
    ):
        if deep:
            report = _verify_deeply(location, inventory, display, spark_settings(master, remote, conf))
        else:
            _begin(display, inventory, [entry.size_bytes for entry in inventory.segments])
            report = verify_quickly(opened, inventory, display)
        report = without_pruned(report, catalog)
    _show(report, output_format)
    if report.damages:
        raise typer.Exit(1)


def _verify_deeply(
    location: "StorageLocation",
    inventory: "Inventory",
    display: ProgressDisplay,
    settings: "SparkSettings",
) -> "VerificationReport":
    from quorate.backup.spark.session.spark_session import open_spark
    from quorate.backup.spark.upkeep.verification import pack_segments, verify_on_spark

    display.phase("starting Spark")
    with open_spark(settings, f"quorate verify {inventory.backup_id}", display.say) as spark:
        tasks = pack_segments(inventory.segments)
        _begin(display, inventory, [sum(entry.size_bytes for entry in task) for task in tasks])
        return verify_on_spark(spark, location, inventory, display)


def _begin(display: ProgressDisplay, inventory: "Inventory", task_bytes: list[int]) -> None:
    from quorate.backup.spark.run_progress import RunProgress

    display.say(f"{counted(len(inventory.segments), 'object')} of {counted(inventory.manifest_count, 'manifest')}")
    display.begin(RunProgress(task_bytes, [frozenset()] * len(task_bytes), 0))


def _show(report: "VerificationReport", output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        print(msgspec.json.encode(report).decode(), flush=True)
        return
    from quorate.backup.objects.stored_documents import one_line

    for damage in report.damages:
        print(f"damaged: {one_line(damage.message)}")
    print(_summary(report), flush=True)


def _summary(report: "VerificationReport") -> str:
    """What was looked at, and no more than that."""
    read = report.manifests - report.unreadable_manifests
    which = "the newest manifest" if report.newest_only else f"{read} manifest{'' if read == 1 else 's'}"
    if report.unreadable_manifests:
        which = f"{read} of {report.manifests} manifests"
    name = f"backup {report.backup_id}, manifest {report.manifest_number}"
    begin = f"{name}: {counted(report.objects, 'object')} of {which}"
    sound = f"{len(report.damages)} damaged, {format_bytes(report.size_bytes)}"
    if report.record_count is None:
        return f"{begin}, {sound} with the right size and SHA-256 (no batch was opened: --deep checks each of them)"
    return f"{begin}, {sound} and {counted(report.record_count, 'record')} sound, every batch checked"
