"""``quorate hold``: keep manifests of a backup from being pruned, until they are released."""

import time
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from quorate.cli.spark_options import FormatOption, OutputFormat
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    from quorate.backup.manifests.catalog import ManifestCatalog
    from quorate.backup.retention.holds import HoldLedger


def hold(  # noqa: PLR0917 - typer calls it by name
    storage: Annotated[str, typer.Option(help="Where the backups are: file:///…, s3://…, gs://…, az://…")],
    backup_id: Annotated[str, typer.Option(help="Which backup.")],
    manifest: Annotated[int | None, typer.Option(help="Only this one; all that are there now, unless given.")] = None,
    release: Annotated[bool, typer.Option("--release", help="End the hold.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why: kept with the hold, and shown.")] = None,
    endpoint: Annotated[str | None, typer.Option(help="Address of an S3-compatible storage.")] = None,
    output_format: FormatOption = OutputFormat.TEXT,
) -> None:
    """Keep manifests, and every object that they name, from being pruned."""
    from quorate.backup.config import check_backup_id
    from quorate.backup.manifests.catalog import ManifestCatalog
    from quorate.backup.objects.opening import open_storage
    from quorate.backup.objects.storage import StorageLocation
    from quorate.backup.retention.holds import HoldLedger, holds_location

    check_backup_id(backup_id)
    if release and reason is not None:
        raise QuorateError("--reason belongs to a hold: a release has none")
    root = StorageLocation(storage, endpoint)
    catalog = ManifestCatalog(open_storage(root.below(backup_id)), backup_id)
    if not catalog.numbers():
        raise QuorateError(f"there is no backup {backup_id} in {storage}")
    ledger = HoldLedger(open_storage(holds_location(root, backup_id)), backup_id)
    numbers = _release(ledger, manifest) if release else _hold(ledger, catalog, manifest, reason or "")
    _show(backup_id, numbers, "released" if release else "held", output_format)


def _hold(ledger: "HoldLedger", catalog: "ManifestCatalog", manifest: int | None, reason: str) -> list[int]:
    from quorate.backup.retention.holds import Hold, NotHeld

    numbers = catalog.numbers() if manifest is None else [manifest]
    wanted = Hold(since_ms=_now_ms(), reason=reason)
    refusals: list[str] = []
    for number in numbers:
        try:
            found = ledger.hold(catalog, number, wanted)
        except NotHeld as error:
            refusals.append(str(error))
            continue
        if reason and found.reason != reason:
            name = f"manifest {number} of backup {catalog.backup_id}"
            refusals.append(f"{name} is held already, for another reason: {found.reason!r}")
    if refusals:
        others = "" if len(numbers) == 1 else f"; {len(numbers) - len(refusals)} others are held as asked for"
        raise QuorateError(f"{refusals[0]}{others}")
    return numbers


def _release(ledger: "HoldLedger", manifest: int | None) -> list[int]:
    numbers = list(ledger.holds()) if manifest is None else [manifest]
    released = [number for number in numbers if ledger.release(number, now_ms=_now_ms()) is not None]
    if not released:
        raise QuorateError("nothing is held there" if manifest is None else f"manifest {manifest} is not held")
    return released


def _show(backup_id: str, numbers: list[int], what: str, output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        print(msgspec.json.encode({"backup_id": backup_id, what: numbers}).decode(), flush=True)
        return
    listed = ", ".join(str(number) for number in numbers)
    print(f"backup {backup_id}: {what}: manifest{'s' if len(numbers) > 1 else ''} {listed}", flush=True)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
