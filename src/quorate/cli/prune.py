"""``quorate prune``: delete old manifests of backups, and the objects that only they name."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from quorate.cli.interruption import interruptible
from quorate.cli.progress_display import ProgressDisplay, format_bytes
from quorate.cli.spark_options import FormatOption, OutputFormat
from quorate.cli.terminal import counted
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    from quorate.backup.objects.storage import StorageLocation
    from quorate.backup.retention.prune import PruneReport
    from quorate.backup.retention.prune_policy import PrunePolicy

_HOUR_MS = 3_600_000


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
        _Display("prune", is_quiet=output_format is OutputFormat.JSON) as display,
    ):
        for each in _backup_ids(root, backup_id):
            session = _BackupPrune(root, each, display, round(orphan_age_hours * _HOUR_MS))
            try:
                reports.append(session.run(policy, ignore_restore or [], is_dry=dry_run))
            except QuorateError as error:
                if backup_id is not None:
                    raise
                failures.append(str(error))
    _show(reports, output_format)
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


class _Display(ProgressDisplay):
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
    def __init__(self, root: "StorageLocation", backup_id: str, display: _Display, orphan_age_ms: int) -> None:
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
        now_ms = time.time_ns() // 1_000_000
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


def _show(reports: "list[PruneReport]", output_format: OutputFormat) -> None:
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
