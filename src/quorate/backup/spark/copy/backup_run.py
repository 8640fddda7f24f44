"""One run of a backup, on the driver: capture, plan, copy on Spark, commit. Does I/O.

Nothing counts before the manifest is published, which is one put of one object: a run that ends anywhere before leaves
only objects that no manifest names.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from quorate.backup.config import BackupConfig
from quorate.backup.errors import CommitConflict
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.commit import Run, after, commit, require_cluster
from quorate.backup.manifests.manifest import Failure, GapReason, GroupEntry, Isolation, Manifest, Mode
from quorate.backup.manifests.merging import MergedRun, RangeResult, merge_results
from quorate.backup.objects.stored_documents import now_ms
from quorate.backup.planning.cluster_snapshot import ClusterSnapshot
from quorate.backup.planning.planner import Plan, PlannerSettings, plan_run, require_topics
from quorate.backup.segments.range_copier import SegmentSettings
from quorate.backup.spark.copy.cluster_capture import (
    capture_cluster,
    capture_groups,
    copied_in_parts,
    truncated_meanwhile,
)
from quorate.backup.spark.copy.copy_task import CopySettings, CopyTask, TaskReport
from quorate.backup.spark.copy.run_report import RunReport, run_report
from quorate.backup.spark.session.job import JobWatcher, SparkDriver
from quorate.backup.spark.session.work_sharing import share_of_limit
from quorate.client.config import ClientConfig
from quorate.client.fetch.batches import IsolationLevel
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.decoding import decode_msgpack

# The ends of the logs and the offsets of groups are asked for by the driver; a user waits for the answer.
_CAPTURE_TIMEOUT_MS = 30_000
_CAPTURE_CONNECTIONS = 4


class PlanWatcher(JobWatcher, Protocol):
    def planned(self, plan: Plan) -> None:
        """What is about to be copied."""
        ...


class BackupRuns:
    """Runs of one backup, one after the other, on one Spark session that is started when it is first needed."""

    def __init__(
        self,
        config: BackupConfig,
        client_config: ClientConfig,
        catalog: ManifestCatalog,
        spark: Callable[[], SparkDriver],
    ) -> None:
        self._config = config
        self._client_config = client_config
        self._catalog = catalog
        self._spark = spark

    def run(self, watcher: PlanWatcher, *, commit_unchanged: bool = True) -> RunReport | None:
        """Copy and commit. None where nothing has changed since the last run and ``commit_unchanged`` is not set."""
        started = time.monotonic()
        run_id = uuid.uuid4().hex
        config = self._config
        watcher.phase("planning")
        previous, number = self._catalog.head()
        captured = self._capture(None if config.backup.mode is Mode.SNAPSHOT else previous)
        require_cluster(previous, captured.cluster.cluster_id)
        settings = PlannerSettings(range_bytes=config.backup.range_bytes)
        plan = plan_run(captured.cluster, previous, config.source.topics, config.backup.mode, settings)
        require_topics(plan, config.source.topics, allow_empty=config.backup.allow_empty)
        watcher.planned(plan)
        reports = self._copy(plan, run_id, watcher)
        watcher.phase("committing")
        results = [result for report in reports for result in report.results]
        failures = [*captured.failures, *_unreadable(results), *self._truncated_meanwhile(plan)]
        merged = merge_results(plan, results, groups=captured.groups, failures=failures)
        run = self._describe(captured, run_id, number)
        manifest = commit(previous, run, merged.updates, merged.requirements)
        if not commit_unchanged and previous is not None and _says_the_same(manifest, previous):
            return None
        manifest = self._publish(manifest, previous, run, merged)
        seconds = time.monotonic() - started
        return run_report(plan, manifest, reports, leaders_followed=captured.leaders_followed, seconds=seconds)

    def _publish(self, manifest: Manifest, previous: Manifest | None, run: Run, merged: MergedRun) -> Manifest:
        """Publish; returns what was published. A compaction that was faster is followed: it says the same."""
        while True:
            try:
                self._catalog.publish(manifest, merged.segments)
            except CommitConflict:
                newest, number = self._catalog.head()
                if newest is None or previous is None or newest.compacted_from != previous.number:
                    raise
                previous, run = newest, msgspec.structs.replace(run, number=number)
                manifest = commit(previous, run, merged.updates, after(previous, merged.requirements))
            else:
                return manifest

    def _truncated_meanwhile(self, plan: Plan) -> list[Failure]:
        if not copied_in_parts(plan):
            return []
        with self._client() as client:
            return truncated_meanwhile(client.offsets, plan)

    def _client(self) -> KafkaClient:
        """For questions of the driver."""
        timeout_ms = min(_CAPTURE_TIMEOUT_MS, self._client_config.retry_timeout_ms)
        config = msgspec.structs.replace(
            self._client_config, retry_timeout_ms=timeout_ms, connections_per_broker=_CAPTURE_CONNECTIONS
        )
        return KafkaClient(config)

    def _capture(self, continued: Manifest | None) -> "_Captured":
        """Groups are captured before the ends of the logs, so that no committed offset lies behind an end."""
        selection = self._config.source.topics
        groups: list[GroupEntry] | None = None
        failures: list[Failure] = []
        with self._client() as client:
            if self._config.backup.consumer_groups:
                client.cluster.metadata([])  # Says whether the cluster can be reached at all.
                groups, failures = capture_groups(client, selection.selects)
            cluster = capture_cluster(client, selection, self._isolation, continued)
            return _Captured(cluster, groups, failures, client.leaders_followed)

    def _copy(self, plan: Plan, run_id: str, watcher: JobWatcher) -> list[TaskReport]:
        if not plan.tasks:
            return []
        config = self._config
        spark = self._spark()
        settings = CopySettings(
            run_id=run_id,
            cluster_id=plan.cluster_id,
            location=config.location,
            client=self._client_config,
            isolation=self._isolation,
            segments=SegmentSettings(
                codec=config.codec,
                max_bytes=config.backup.segment_max_bytes,
                max_age_ms=config.backup.segment_max_age_ms,
            ),
            bytes_per_second=share_of_limit(
                config.backup.rate_limit_bytes_per_second, tasks=len(plan.tasks), slots=spark.slots()
            ),
        )
        watcher.phase("copying")
        rows = spark.run(CopyTask(settings), [msgspec.msgpack.encode(task) for task in plan.tasks], watcher)
        return [decode_msgpack(row, TaskReport) for row in rows]

    def _describe(self, captured: "_Captured", run_id: str, number: int) -> Run:
        return Run(
            backup_id=self._config.backup_id,
            cluster_id=captured.cluster.cluster_id,
            run_id=run_id,
            created_ms=now_ms(),
            captured_ms=captured.cluster.captured_ms,
            settings=self._config.run_settings,
            number=number,
        )

    @property
    def _isolation(self) -> IsolationLevel:
        if self._config.backup.isolation is Isolation.READ_COMMITTED:
            return IsolationLevel.READ_COMMITTED
        return IsolationLevel.READ_UNCOMMITTED


class _Captured(NamedTuple):
    """The cluster as it was when the run began."""

    cluster: ClusterSnapshot
    groups: list[GroupEntry] | None  # None where they are not wanted.
    failures: list[Failure]
    leaders_followed: int


def client_config(config: BackupConfig) -> ClientConfig:
    """How the tasks reach the cluster."""
    source = config.source
    return ClientConfig(
        bootstrap_servers=source.bootstrap_servers,
        client_id="quorate-backup",
        security=source.security,
        rack=source.rack,
        metadata_refresh_interval_ms=source.metadata_refresh_interval_ms,
        request_timeout_ms=source.request_timeout_ms,
        retry_timeout_ms=config.backup.deadline_ms,
    )


def _unreadable(results: Sequence[RangeResult]) -> Iterator[Failure]:
    """What the cluster holds and cannot give is missing, unlike what it has deleted."""
    for result in results:
        for gap in result.gaps:
            if gap.reason is GapReason.UNREADABLE:
                message = f"offsets {gap.start_offset} to {gap.end_offset - 1} cannot be read: {gap.detail}"
                yield Failure(topic=result.key.topic, partition=result.key.partition, message=message)


def _says_the_same(manifest: Manifest, previous: Manifest) -> bool:
    """Apart from times: when a group's offsets were looked at, and when the run was."""
    if manifest.topics != previous.topics or manifest.failures != previous.failures:
        return False
    offsets = [(group.group, group.offsets) for group in manifest.groups]
    return offsets == [(group.group, group.offsets) for group in previous.groups]
