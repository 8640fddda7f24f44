"""Keeping a backup small: compactions, and the maintenance that a continuous backup does by itself. Does I/O.

A compaction is planned on the driver, merged by tasks, committed. Like a backup run it publishes one manifest at its
end; whatever ends it before leaves only objects that no manifest names. Where another run was faster, the merges are
put on top of what that one committed. A task is safe to run twice: every attempt writes objects of its own.

Every round of a continuous backup leaves a manifest and, of each partition that has something new, one small object. So
that they do not pile up, from time to time the small objects are merged, on the session that the rounds run on,
manifests are thinned out, and what only those named is deleted; time is handed in. Runs of other modes and what is held
or read by a restore stay; so does the last complete copy of every topic.
"""

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from quorate.backup.config import BackupConfig
from quorate.backup.errors import BackupError, CommitConflict
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.manifest import Manifest, SegmentEntry
from quorate.backup.objects.names import attempt_name
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import StorageLocation
from quorate.backup.objects.stored_documents import now_ms
from quorate.backup.restore.ledger import RestoreLedger, restores_below
from quorate.backup.retention.compaction import Merge, MergeGroup, compacted, merge_segments, plan_merges
from quorate.backup.retention.holds import HoldLedger, holds_location
from quorate.backup.retention.prune import Pruner, PruneWatcher
from quorate.backup.retention.prune_policy import MaintenancePolicy
from quorate.backup.segments.layout import FrameCodec
from quorate.backup.spark.session.job import RunWatcher, SparkDriver
from quorate.backup.spark.session.tasks import FinishedTask, Outcome, Report, TaskAdvance, ignore
from quorate.backup.spark.session.work_sharing import pack_by_bytes
from quorate.kernel.decoding import decode_msgpack

_MAX_COMMITS = 20
#: A merge takes at least so many objects, so that a partition with little news is not rewritten for each of them.
FAN_IN: Final = 10
#: A mark keeps a run apart that began before the manifest in its place was pruned, and is late by less than this.
MARK_AGE_MS: Final = 3_600_000


class CompactReport(msgspec.Struct, frozen=True, kw_only=True):
    backup_id: str
    manifest_number: int
    compacted_from: int | None  # None: there was nothing to merge, and nothing was committed.
    segments_before: int  # Those that were merged.
    segments_after: int
    size_bytes: int
    faults: list[str]
    seconds: float


class CompactSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of a run share."""

    run_id: str
    cluster_id: str
    location: StorageLocation  # Of the backup's own folder.
    codec: FrameCodec


class MergeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    group: MergeGroup
    merged: SegmentEntry | None
    fault: str | None = None  # Why the group stays as it is.


class CompactRun:
    """``location`` is the backup's own folder. Spark is started when there is something to merge."""

    def __init__(self, location: StorageLocation, catalog: ManifestCatalog, spark: Callable[[], SparkDriver]) -> None:
        self._location = location
        self._catalog = catalog
        self._spark = spark

    def run(
        self, watcher: RunWatcher, *, min_segment_bytes: int, max_segment_bytes: int, fan_in: int | None = None
    ) -> CompactReport:
        started = time.monotonic()
        run_id = uuid.uuid4().hex
        watcher.phase("planning")
        manifest = self._newest()
        groups = plan_merges(
            manifest, min_segment_bytes=min_segment_bytes, max_segment_bytes=max_segment_bytes, fan_in=fan_in
        )
        answers = self._merge(groups, manifest, run_id, watcher)
        merges = [Merge(group=each.group, merged=each.merged) for each in answers if each.merged is not None]
        watcher.phase("committing")
        committed, taken = self._commit(merges, run_id)
        return CompactReport(
            backup_id=committed.backup_id,
            manifest_number=committed.number,
            compacted_from=committed.compacted_from if taken else None,
            segments_before=sum(len(merge.group.segments) for merge in taken),
            segments_after=len(taken),
            size_bytes=sum(merge.merged.size_bytes for merge in taken),
            faults=_lasting_faults(answers, committed),
            seconds=time.monotonic() - started,
        )

    def _newest(self) -> Manifest:
        manifest = self._catalog.latest()
        if manifest is None:
            raise BackupError(f"there is no backup {self._catalog.backup_id} in {self._location.url}")
        return manifest

    def _merge(
        self, groups: list[MergeGroup], manifest: Manifest, run_id: str, watcher: RunWatcher
    ) -> list[MergeAnswer]:
        if not groups:
            return []
        self._catalog.probe(run_id)
        tasks = pack_by_bytes(groups, lambda group: group.size_bytes)
        settings = CompactSettings(
            run_id=run_id,
            cluster_id=manifest.cluster_id,
            location=self._location,
            codec=FrameCodec[manifest.settings.compression.upper()],
        )
        spark = self._spark()
        watcher.begins("compact", [sum(group.size_bytes for group in task) for task in tasks])
        rows = spark.run(CompactTask(settings), [msgspec.msgpack.encode(task) for task in tasks], watcher)
        return [answer for row in rows for answer in decode_msgpack(row, list[MergeAnswer])]

    def _commit(self, merges: list[Merge], run_id: str) -> tuple[Manifest, list[Merge]]:
        """The newest manifest, and the merges that it has of these."""
        for _ in range(_MAX_COMMITS):
            newest, number = self._catalog.head()
            if newest is None:
                raise BackupError(f"backup {self._catalog.backup_id} was deleted meanwhile")
            manifest, taken = compacted(newest, merges, number=number, run_id=run_id, created_ms=now_ms())
            if not taken:
                return newest, []
            try:
                self._catalog.publish(manifest, [merge.merged for merge in taken])
            except CommitConflict:
                continue
            return manifest, taken
        raise CommitConflict(
            f"other runs of backup {self._catalog.backup_id} were faster {_MAX_COMMITS} times; nothing was compacted"
        )


def _lasting_faults(answers: Sequence[MergeAnswer], newest: Manifest) -> list[str]:
    """Segments that a prune took, because a later run needs them no more, are no fault."""
    named = newest.object_names()
    return [
        each.fault
        for each in answers
        if each.fault is not None and all(segment.name in named for segment in each.group.segments)
    ]


class CompactTask:
    """The work of a job: called with the encoded groups of one task."""

    def __init__(self, settings: CompactSettings) -> None:
        self._settings = settings

    def __call__(self, task: bytes, report: Report = ignore, /) -> Outcome:
        groups = decode_msgpack(task, list[MergeGroup])
        answers = [self._merge(group, report) for group in groups]
        records = sum(0 if each.merged is None else each.merged.live_record_count for each in answers)
        return Outcome(msgspec.msgpack.encode(answers), sum(group.size_bytes for group in groups), records)

    def _merge(self, group: MergeGroup, report: Report) -> MergeAnswer:
        settings = self._settings
        try:
            merged = merge_segments(
                open_storage(settings.location),
                group,
                cluster_id=settings.cluster_id,
                codec=settings.codec,
                attempt=attempt_name(settings.run_id, uuid.uuid4().hex),
            )
        except BackupError as error:
            return MergeAnswer(group=group, merged=None, fault=str(error))
        report(group.size_bytes, merged.record_count)
        return MergeAnswer(group=group, merged=merged)


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
