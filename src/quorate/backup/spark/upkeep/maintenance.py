"""What a continuous backup does by itself, so that its rounds do not pile up. Does I/O; time is handed in.

Every round leaves a manifest and, of each partition that has something new, one small object. From time to time the
small objects are merged, on the session that the rounds run on, manifests are thinned out, and what only those named is
deleted. Runs of other modes and what is held or read by a restore stay; so does the last complete copy of every topic.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from quorate.backup.config import BackupConfig
from quorate.backup.errors import BackupError
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import StorageLocation
from quorate.backup.restore.ledger import RestoreLedger, restores_below
from quorate.backup.retention.holds import HoldLedger, holds_location
from quorate.backup.retention.prune import Pruner, PruneWatcher
from quorate.backup.retention.prune_policy import MaintenancePolicy
from quorate.backup.spark.session.job import SparkDriver
from quorate.backup.spark.session.tasks import FinishedTask, TaskAdvance
from quorate.backup.spark.upkeep.compact_run import CompactRun

#: A merge takes at least so many objects, so that a partition with little news is not rewritten for each of them.
FAN_IN: Final = 10
#: A mark keeps a run apart that began before the manifest in its place was pruned, and is late by less than this.
MARK_AGE_MS: Final = 3_600_000


class Maintained(msgspec.Struct, frozen=True, kw_only=True):
    merged: int  # Objects that became fewer.
    pruned: int  # Manifests.
    deleted: int  # Objects that only those named.
    problem: str | None = None  # What stopped it. The next one goes on there.


class Maintenance:
    """``compact`` merges small objects and returns how many it merged."""

    def __init__(self, policy: MaintenancePolicy, pruner: Pruner, compact: Callable[[], int]) -> None:
        self._policy = policy
        self._pruner = pruner
        self._compact = compact
        self._done_ms: int | None = None

    def run_if_due(self, watcher: PruneWatcher, *, now_ms: int) -> Maintained | None:
        """None where it is not time. The first one is an interval after the first call."""
        if self._policy.interval_ms is None:
            return None
        if self._done_ms is None:
            self._done_ms = now_ms
        if abs(now_ms - self._done_ms) < self._policy.interval_ms:
            return None
        self._done_ms = now_ms
        return self.run(watcher, now_ms=now_ms)

    def run(self, watcher: PruneWatcher, *, now_ms: int) -> Maintained:
        """Compaction comes first, so that what is kept of an hour is compacted."""
        merged, pruned, deleted = 0, 0, 0
        try:
            merged = self._compact()
            report = self._pruner.prune(self._policy.prune_policy, watcher, now_ms=now_ms)
            pruned, deleted = len(report.pruned), report.objects
            self._pruner.forget_marks(now_ms=now_ms, safe_age_ms=MARK_AGE_MS)
        except BackupError as error:
            return Maintained(merged=merged, pruned=pruned, deleted=deleted, problem=str(error))
        return Maintained(merged=merged, pruned=pruned, deleted=deleted)


class QuietWatcher:
    """Nobody waits for this work."""

    def begins(self, what: str, task_bytes: Sequence[int]) -> None:
        """A merge is no news."""

    def tasks_finished(self, finished: Sequence[FinishedTask], finished_count: int) -> None:
        """A merge is no news."""

    def tasks_advanced(self, advanced: Sequence[TaskAdvance]) -> None:
        """A merge is no news."""

    def phase(self, name: str) -> None:
        """A merge is no news."""

    def deletes(self, count: int) -> None:
        """Deletions are told when they are done."""

    def deleted(self, count: int) -> None:
        """Deletions are told when they are done."""


def open_maintenance(
    config: BackupConfig, catalog: ManifestCatalog, spark: Callable[[], SparkDriver], say: Callable[[str], None]
) -> Maintenance:
    """``catalog`` is the one of the rounds: what it remembers saves reading."""
    root = StorageLocation(config.storage.url, config.storage.endpoint)
    holds = HoldLedger(open_storage(holds_location(root, config.backup_id)), config.backup_id)
    restores = RestoreLedger(open_storage(restores_below(root, config.backup_id)))
    compaction = CompactRun(config.location, catalog, spark)
    min_bytes = config.maintenance.compact_below_bytes

    def compact() -> int:
        report = compaction.run(
            QuietWatcher(),
            min_segment_bytes=min_bytes,
            max_segment_bytes=max(min_bytes, config.backup.segment_max_bytes),
            fan_in=FAN_IN,
        )
        for fault in report.faults:
            say(f"not merged: {fault}")
        return report.segments_before

    pruner = Pruner(open_storage(config.location), catalog, holds, restores)
    return Maintenance(config.maintenance, pruner, compact)
