"""``quorate compact``, ``prune`` and ``hold``: the upkeep of backups.

Small segments are merged into larger ones, on Spark. Old manifests are deleted, and the objects that only they name;
those on hold stay until they are released.
"""

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from quorate.cli.interruption import interruptible
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
from quorate.kernel.errors import QuorateError
from quorate.kernel.settings import parse_size

if TYPE_CHECKING:
    from quorate.backup.manifests.catalog import ManifestCatalog
    from quorate.backup.objects.storage import StorageLocation
    from quorate.backup.retention.holds import HoldLedger
    from quorate.backup.retention.prune import PruneReport
    from quorate.backup.retention.prune_policy import PrunePolicy
    from quorate.backup.spark.upkeep.maintenance import CompactReport

_HOUR_MS = 3_600_000


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
    keep_warm: KeepWarmOption = None,
    output_format: FormatOption = OutputFormat.TEXT,
) -> None:
    """Merge small segments into larger ones, as a new manifest. What older manifests name stays until it is pruned."""
    from quorate.backup.config import check_backup_id
    from quorate.backup.manifests.catalog import ManifestCatalog
    from quorate.backup.objects.opening import open_storage
    from quorate.backup.objects.storage import StorageLocation
    from quorate.backup.spark.upkeep.maintenance import CompactRun

    check_backup_id(backup_id)
    smallest_bytes = _size("--min-segment-bytes", min_segment_bytes)
    largest_bytes = _size("--max-segment-bytes", max_segment_bytes)
    if largest_bytes < smallest_bytes:
        raise QuorateError("--max-segment-bytes is smaller than --min-segment-bytes: nothing could be merged")
    location = StorageLocation(storage, endpoint).below(backup_id)
    catalog = ManifestCatalog(open_storage(location), backup_id)
    settings = spark_settings(master, remote, conf, keep_warm)
    with (
        interruptible("what was merged counts once its manifest is committed, and the backup is whole either way"),
        ProgressDisplay("compact", is_quiet=output_format is OutputFormat.JSON) as display,
        contextlib.ExitStack() as stack,
    ):
        start_spark = spark_when_needed(settings, f"quorate compact {backup_id}", display, stack)
        run = CompactRun(location, catalog, start_spark)
        report = run.run(display, min_segment_bytes=smallest_bytes, max_segment_bytes=largest_bytes)
    _show_compacted(report, output_format)
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


def _show_compacted(report: "CompactReport", output_format: OutputFormat) -> None:
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


def prune(  # noqa: PLR0917 - typer calls it by name
    storage: Annotated[str, typer.Option(help="Where the backups are: file:///…, s3://…, gs://…, az://…")],
    backup_id: Annotated[str | None, typer.Option(help="Only this backup; all of the storage unless given.")] = None,
    keep_last: Annotated[int | None, typer.Option(help="Keep so many of the newest manifests.")] = None,
    keep_days: Annotated[float | None, typer.Option(help="Keep manifests captured in the last so many days.")] = None,
    keep_hourly: Annotated[
        int | None, typer.Option(help="Keep one manifest of each of the last so many hours that have any.")
    ] = None,
    keep_daily: Annotated[
        int | None, typer.Option(help="Keep one manifest of each of the last so many days that have any.")
    ] = None,
    delete_all: Annotated[
        bool, typer.Option("--all", help="Delete the whole backup, its newest manifest too; needs --backup-id.")
    ] = False,
    forget_topic: Annotated[
        list[str] | None,
        typer.Option(help="Let even the last complete copy of this topic go; needs --backup-id."),
    ] = None,
    ignore_restore: Annotated[
        list[str] | None,
        typer.Option(help="Keep nothing for this unfinished restore, which will not be gone on with."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    orphan_age_hours: Annotated[
        float, typer.Option(min=0, help="Delete objects that no manifest names when they are this old.")
    ] = 24.0,
    endpoint: Annotated[str | None, typer.Option(help="Address of an S3-compatible storage.")] = None,
    output_format: FormatOption = OutputFormat.TEXT,
) -> None:
    """Delete old manifests and the objects that only they name. What a kept manifest names stays."""
    from quorate.backup.objects.storage import StorageLocation
    from quorate.backup.retention.prune_policy import PrunePolicy

    policy = PrunePolicy(
        keep_last=keep_last,
        keep_days=keep_days,
        keep_hourly=keep_hourly,
        keep_daily=keep_daily,
        drops_all=delete_all,
        forget_topics=tuple(forget_topic or ()),
    )
    _check_names(policy, backup_id)
    root = StorageLocation(storage, endpoint)
    reports: list[PruneReport] = []
    failures: list[str] = []
    with (
        interruptible("prune again, and it goes on where it was"),
        _PruneDisplay("prune", is_quiet=output_format is OutputFormat.JSON) as display,
    ):
        for each in _backup_ids(root, backup_id):
            session = _BackupPrune(root, each, display, round(orphan_age_hours * _HOUR_MS))
            try:
                reports.append(session.run(policy, ignore_restore or [], is_dry=dry_run))
            except QuorateError as error:
                if backup_id is not None:
                    raise
                failures.append(str(error))
    _show_pruned(reports, output_format)
    _fail_with(failures)


def _fail_with(failures: list[str]) -> None:
    for failure in failures:
        print(f"quorate: {failure}", file=sys.stderr)
    if failures:
        raise typer.Exit(1)


def _check_names(policy: "PrunePolicy", backup_id: str | None) -> None:
    from quorate.backup.retention.prune_policy import check_policy

    check_policy(policy)
    if policy.forget_topics and backup_id is None:
        raise QuorateError("--forget-topic is about the topics of one backup: name it with --backup-id")
    if policy.drops_all and backup_id is None:
        raise QuorateError("--all deletes one whole backup: name it with --backup-id")


class _PruneDisplay(ProgressDisplay):
    """Also the watcher of a prune."""

    def deletes(self, count: int) -> None:
        from quorate.backup.spark.run_progress import RunProgress

        self._deleted = 0
        self.begin(RunProgress([1] * count, [frozenset()] * count, 0))

    def deleted(self, count: int) -> None:
        from quorate.backup.spark.session.tasks import FinishedTask

        self.tasks_finished([FinishedTask(self._deleted, 0, 0)], self._deleted + count)
        self._deleted += count


def _backup_ids(root: "StorageLocation", backup_id: str | None) -> list[str]:
    from quorate.backup.config import check_backup_id
    from quorate.backup.manifests.catalog import list_backup_ids
    from quorate.backup.objects.opening import open_storage

    if backup_id is not None:
        check_backup_id(backup_id)
        return [backup_id]
    opened = open_storage(root)
    opened.check_reachable()
    return list_backup_ids(opened)


class _BackupPrune:
    def __init__(self, root: "StorageLocation", backup_id: str, display: _PruneDisplay, orphan_age_ms: int) -> None:
        from quorate.backup.manifests.catalog import ManifestCatalog
        from quorate.backup.objects.opening import open_storage
        from quorate.backup.restore.ledger import RestoreLedger, restores_below
        from quorate.backup.retention.holds import HoldLedger, holds_location
        from quorate.backup.retention.prune import Pruner

        self._storage = open_storage(root.below(backup_id))
        self._catalog = ManifestCatalog(self._storage, backup_id)
        self._holds = HoldLedger(open_storage(holds_location(root, backup_id)), backup_id)
        restores = RestoreLedger(open_storage(restores_below(root, backup_id)))
        self._pruner = Pruner(self._storage, self._catalog, self._holds, restores)
        self._url = root.url
        self._display = display
        self._orphan_age_ms = orphan_age_ms

    def run(self, policy: "PrunePolicy", ignored_restores: list[str], *, is_dry: bool) -> "PruneReport":
        from quorate.backup.retention.orphans import collect_orphans

        if not self._catalog.numbers() and not self._catalog.marks() and not self._holds.decisions():
            raise QuorateError(f"there is no backup {self._catalog.backup_id} in {self._url}")
        now_ms = _now_ms()
        report = self._pruner.prune(
            policy, self._display, now_ms=now_ms, ignored_restores=ignored_restores, is_dry=is_dry
        )
        if not is_dry:
            age_ms = self._orphan_age_ms
            orphans = collect_orphans(self._storage, self._catalog, now_ms=now_ms, safe_age_ms=age_ms)
            if orphans:
                self._display.say(f"{counted(len(orphans), 'object')} of unfinished runs deleted")
            self._pruner.forget_marks(now_ms=now_ms, safe_age_ms=age_ms)
        return report


def _show_pruned(reports: "list[PruneReport]", output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        print(msgspec.json.encode(reports).decode(), flush=True)
        return
    for report in reports:
        for verdict in report.kept:
            print(f"backup {report.backup_id}: manifest {verdict.number} stays: {verdict.kept_because}")
        verb = "would be" if report.is_dry else "were"
        print(
            f"backup {report.backup_id}: {counted(len(report.pruned), 'manifest')} and "
            f"{counted(report.objects, 'object')} "
            f"({format_bytes(report.size_bytes)}) {verb} deleted, {counted(len(report.kept), 'manifest')} kept",
            flush=True,
        )


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
    numbers = (
        _release_manifests(ledger, manifest) if release else _hold_manifests(ledger, catalog, manifest, reason or "")
    )
    _show_held(backup_id, numbers, "released" if release else "held", output_format)


def _hold_manifests(ledger: "HoldLedger", catalog: "ManifestCatalog", manifest: int | None, reason: str) -> list[int]:
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


def _release_manifests(ledger: "HoldLedger", manifest: int | None) -> list[int]:
    numbers = list(ledger.holds()) if manifest is None else [manifest]
    released = [number for number in numbers if ledger.release(number, now_ms=_now_ms()) is not None]
    if not released:
        raise QuorateError("nothing is held there" if manifest is None else f"manifest {manifest} is not held")
    return released


def _show_held(backup_id: str, numbers: list[int], what: str, output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        print(msgspec.json.encode({"backup_id": backup_id, what: numbers}).decode(), flush=True)
        return
    listed = ", ".join(str(number) for number in numbers)
    print(f"backup {backup_id}: {what}: manifest{'s' if len(numbers) > 1 else ''} {listed}", flush=True)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
