"""One run of a restore, on the driver: check, survey on Spark, commit to a plan, write on Spark, finish. Does I/O.

Up to the stored plan nothing has changed at the target. From then on every run with the same settings follows that plan
until it is done, so a run that was killed anywhere is repeated by running it again.
"""

import time
from collections.abc import Callable, Sequence

import msgspec

from quorate.backup.errors import BackupError, ManifestPruned
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.manifest import Manifest, SegmentEntry
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.stored_documents import now_ms
from quorate.backup.restore.checks import retention_warnings
from quorate.backup.restore.config import RestoreConfig
from quorate.backup.restore.ledger import RestoreDone, RestoreLedger, restores_location, settings_digest
from quorate.backup.restore.outgoing import PartitionAssignment, SourceSegments
from quorate.backup.restore.plan import RestorePlan, TargetTopic, spans_by_target
from quorate.backup.retention.holds import HoldLedger, holds_location
from quorate.backup.spark.restore.groups import RestoreGroups
from quorate.backup.spark.restore.preparation import RestorePreparation
from quorate.backup.spark.restore.target import RestoreTarget
from quorate.backup.spark.restore.write_task import TaskWritten, WriteSettings, WriteTask
from quorate.backup.spark.session.job import RunWatcher, SparkDriver
from quorate.backup.spark.session.work_sharing import group_into_lanes, pack_by_bytes, share_of_limit
from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.decoding import decode_msgpack
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import PartitionIndex, TopicId, TopicName


class RestoreReport(msgspec.Struct, frozen=True, kw_only=True):
    restore_id: str | None  # None for a dry run.
    backup_id: str
    manifest_number: int
    preserve_offsets: bool
    is_resumed: bool
    topics: list[TargetTopic]
    record_count: int
    batch_bytes: int
    written_records: int  # By this run; a resumed one writes only the rest.
    written_bytes: int
    leaders_followed: int
    groups: list[str]
    seconds: float
    finished_ms: int | None = None  # When an earlier run had finished it; this one had nothing to do.
    warnings: list[str] = []  # What the target will delete of it.


class OpenRestore(msgspec.Struct, frozen=True, kw_only=True):
    restore_id: str
    plan: RestorePlan
    is_resumed: bool


class RestoreRun:
    def __init__(
        self,
        config: RestoreConfig,
        client_config: ClientConfig,
        catalog: ManifestCatalog,
        ledger: RestoreLedger,
        spark: Callable[[], SparkDriver],
    ) -> None:
        self._config = config
        self._client_config = client_config
        self._catalog = catalog
        self._ledger = ledger
        self._holds = HoldLedger(open_storage(holds_location(config.root, config.backup_id)), config.backup_id)
        self._spark = spark
        self._preparation = RestorePreparation(config, catalog, spark)

    def run(self, watcher: RunWatcher, *, is_dry: bool = False) -> RestoreReport:
        started = time.monotonic()
        watcher.phase("planning")
        with KafkaClient(self._client_config) as client:
            target = RestoreTarget(client)
            digest = settings_digest(self._config, target.cluster_id)
            latest = self._ledger.latest(digest)
            finished = None if latest is None else self._finished(latest, target)
            if finished is not None:
                return finished
            opened = None if latest is None else self._unfinished(latest, target)
            if is_dry:
                plan = opened.plan if opened else self._preparation.plan(target, watcher)[0]
                report = _report(plan, opened, [], [], time.monotonic() - started, is_dry=True)
                return msgspec.structs.replace(report, warnings=self._warnings(plan, target))
            if opened is None:
                opened = self._begin(self._ledger.id_after(latest, digest), client, target, watcher)
            written = self._write_the_rest(opened, target, watcher)
            watcher.phase("committing")
            warnings = self._warnings(opened.plan, target)
            groups = self._finish(opened, client, target)
            report = _report(opened.plan, opened, written, groups, time.monotonic() - started)
            return msgspec.structs.replace(report, warnings=warnings)

    def _warnings(self, plan: RestorePlan, target: RestoreTarget) -> list[str]:
        manifest = self._catalog.read(plan.manifest_number)
        return retention_warnings(plan, manifest, target.default_configs(), now_ms=now_ms())

    def _finished(self, restore_id: str, target: RestoreTarget) -> RestoreReport | None:
        """The report on a restore that is done; None where its topics are no longer the ones that it made."""
        done, begun = self._ledger.done(restore_id), self._ledger.topic_ids(restore_id)
        if done is None or not begun:
            return None
        found = target.existing(begun)
        if any(name not in found or found[name].topic_id != topic_id for name, topic_id in begun.items()):
            return None
        opened = OpenRestore(restore_id=restore_id, plan=self._ledger.plan(restore_id), is_resumed=True)
        return msgspec.structs.replace(_report(opened.plan, opened, [], [], 0.0), finished_ms=done.finished_ms)

    def _unfinished(self, restore_id: str, target: RestoreTarget) -> OpenRestore | None:
        """The restore that was begun; None where it is done, abandoned, or all of its topics are gone."""
        if self._ledger.done(restore_id) is not None or self._ledger.is_abandoned(restore_id):
            return None
        plan = self._ledger.plan(restore_id)
        begun = self._ledger.topic_ids(restore_id)
        if begun is None and self._is_pruned(plan.manifest_number):
            self._ledger.put_abandoned(restore_id)
            return None
        if begun is not None:
            found = target.existing(begun)
            kept = [name for name, topic_id in begun.items() if name in found and found[name].topic_id == topic_id]
            if not kept:
                return None  # Deleted to start over.
            if len(kept) < len(begun):
                gone = next(name for name in begun if name not in kept)
                raise QuorateError(
                    f"topic {gone} of the unfinished restore {restore_id} was deleted: delete {kept[0]} and all its "
                    "other topics too, to start over"
                )
        return OpenRestore(restore_id=restore_id, plan=plan, is_resumed=True)

    def _begin(self, restore_id: str, client: KafkaClient, target: RestoreTarget, watcher: RunWatcher) -> OpenRestore:
        own, surveys = self._preparation.plan(target, watcher)
        identity = client.idempotent_producer().identity
        own = msgspec.structs.replace(own, producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)
        for topic in own.topics:
            offset_map = spans_by_target(surveys[topic.source])
            self._ledger.put_offset_map(restore_id, own.map_id, topic.name, offset_map)
        plan = self._ledger.put_plan(restore_id, own)
        if self._is_pruned(plan.manifest_number):
            self._ledger.put_abandoned(restore_id)
            raise ManifestPruned(
                f"manifest {plan.manifest_number} of backup {plan.backup_id} was pruned while it was read; nothing was "
                "restored: run the restore again"
            )
        return OpenRestore(restore_id=restore_id, plan=plan, is_resumed=plan != own)

    def _is_pruned(self, number: int) -> bool:
        """Asked when the plan is stored: a prune that begins later sees that."""
        return self._holds.drops(self._catalog, number)

    def _prepare_topics(self, opened: OpenRestore, target: RestoreTarget) -> dict[TopicName, TopicId]:
        existing = target.existing(topic.name for topic in opened.plan.topics)
        # Asked after that: another command that runs this restore stores them before it writes.
        known = self._ledger.topic_ids(opened.restore_id)
        if known is not None:
            return known
        for name, topic in existing.items():
            if topic.record_offsets:
                raise QuorateError(f"target topic {name} is not empty any more: delete it and restore again")
        return self._ledger.put_topic_ids(opened.restore_id, target.create(opened.plan))

    def _write_the_rest(self, opened: OpenRestore, target: RestoreTarget, watcher: RunWatcher) -> list[TaskWritten]:
        """Write until every record is in the target. Nothing where that was so once: users may write there since."""
        if self._ledger.is_written(opened.restore_id):
            return []
        try:
            written = self._write(opened, self._prepare_topics(opened, target), watcher)
            for problem in target.unwritten(opened.plan.topics):
                raise QuorateError(f"the restore is not complete: {problem}; run it again")
        except QuorateError:
            if self._ledger.is_written(opened.restore_id):
                return []  # Another command was faster, and what is wrong is what was done to the topics since.
            raise
        self._ledger.put_written(opened.restore_id)
        return written

    def _write(
        self, opened: OpenRestore, topic_ids: dict[TopicName, TopicId], watcher: RunWatcher
    ) -> list[TaskWritten]:
        plan = opened.plan
        packs = pack_by_bytes(assignments(plan, self._catalog.read(plan.manifest_number)), _size_of)
        if not packs:
            return []
        spark = self._spark()
        tasks = group_into_lanes(packs, _size_of, slots=spark.slots())
        limit = self._config.restore.rate_limit_bytes_per_second
        settings = WriteSettings(
            restore_id=opened.restore_id,
            run_number=self._ledger.next_run_number(opened.restore_id),
            location=self._config.location,
            restores=restores_location(self._config),
            client=self._client_config,
            producer_id=plan.producer_id,
            producer_epoch=plan.producer_epoch,
            topic_ids=topic_ids,
            bytes_per_second=share_of_limit(limit, tasks=len(tasks), slots=spark.slots()),
        )
        watcher.begins("restore", [sum(_size_of(each) for lane in task for each in lane) for task in tasks])
        rows = spark.run(WriteTask(settings), [msgspec.msgpack.encode(task) for task in tasks], watcher)
        return [decode_msgpack(row, TaskWritten) for row in rows]

    def _finish(self, opened: OpenRestore, client: KafkaClient, target: RestoreTarget) -> list[str]:
        """Set the configs of the source and the groups' offsets, now that the data is in.

        Not a second time where another command has done it: groups may have gone on since.
        """
        plan = opened.plan
        if self._ledger.done(opened.restore_id) is not None:
            return []
        for topic in plan.topics:
            target.finish(topic, plan)
        groups: list[str] = []
        selection = self._config.restore.consumer_groups
        if selection is not None:
            manifest = self._catalog.read(plan.manifest_number)
            restored = RestoreGroups(self._ledger, opened.restore_id, plan, manifest).apply(client, selection)
            groups = [group.group for group in restored]
        self._ledger.put_done(opened.restore_id, RestoreDone(finished_ms=now_ms(), record_count=plan.record_count))
        return groups


def assignments(plan: RestorePlan, manifest: Manifest) -> list[PartitionAssignment]:
    """One for each target partition whose log does not stay empty."""
    found: list[PartitionAssignment] = []
    for topic in plan.topics:
        segments = _segments_of(topic, plan, manifest)
        found += [
            PartitionAssignment(
                topic=topic.name,
                partition=target.partition,
                sources=[
                    SourceSegments(
                        rules=plan.rules(topic, source.partition, max_batch_bytes=topic.max_batch_bytes),
                        excluded=source.excluded,
                        segments=segments[source.partition],
                        segment_counts=source.segment_counts,
                    )
                    for source in target.sources
                ],
                end_offset=None if target.kept_offsets is None else target.kept_offsets.log_end_offset,
            )
            for target in topic.partitions
            if target.log_end_offset
        ]
    return found


def _segments_of(topic: TargetTopic, plan: RestorePlan, manifest: Manifest) -> dict[PartitionIndex, list[SegmentEntry]]:
    """Of the source, by partition. A plan may be of another manifest than the one that has its number."""
    entry = manifest.find(topic.source_topic_id, topic.source)
    partitions = [] if entry is None else entry.partitions
    segments = {partition.partition: partition.segments for partition in partitions}
    for target in topic.partitions:
        for source in target.sources:
            if len(segments.get(source.partition, [])) != len(source.segment_counts):
                raise BackupError(
                    f"the plan of this restore does not fit manifest {manifest.number} of backup {plan.backup_id}: "
                    "delete the topics that it made, and restore again"
                )
    return segments


def _size_of(assignment: PartitionAssignment) -> int:
    return assignment.estimated_bytes


def _report(
    plan: RestorePlan,
    opened: OpenRestore | None,
    written: Sequence[TaskWritten],
    groups: list[str],
    seconds: float,
    *,
    is_dry: bool = False,
) -> RestoreReport:
    return RestoreReport(
        restore_id=None if is_dry or opened is None else opened.restore_id,
        backup_id=plan.backup_id,
        manifest_number=plan.manifest_number,
        preserve_offsets=plan.preserve_offsets,
        is_resumed=opened is not None and opened.is_resumed,
        topics=plan.topics,
        record_count=plan.record_count,
        batch_bytes=plan.batch_bytes,
        written_records=sum(each.record_count for each in written),
        written_bytes=sum(each.batch_bytes for each in written),
        leaders_followed=sum(each.leaders_followed for each in written),
        groups=groups,
        seconds=seconds,
    )
