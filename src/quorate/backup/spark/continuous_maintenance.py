"""The maintenance of a continuous backup on the session that its rounds run on. Does I/O."""

from collections.abc import Callable, Sequence

from quorate.backup.config import BackupConfig
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.objects.storage import StorageLocation, open_storage
from quorate.backup.restore.ledger import RestoreLedger, restores_below
from quorate.backup.retention.holds import HoldLedger, holds_location
from quorate.backup.retention.maintenance import FAN_IN, Maintenance
from quorate.backup.retention.prune import Pruner
from quorate.backup.spark.compact_run import CompactRun
from quorate.backup.spark.session.job import SparkDriver
from quorate.backup.spark.session.tasks import FinishedTask, TaskAdvance


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
