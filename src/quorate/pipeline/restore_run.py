"""One run of a restore, on the driver: check, survey on Spark, commit to a plan, write on Spark, finish. Does I/O.

Up to the stored plan nothing has changed at the target. From then on every run with the same settings follows that plan
until it is done, so a run that was killed anywhere is repeated by running it again.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from quorate.backup.errors import BackupError
from quorate.backup.manifest import Manifest
from quorate.backup.manifest_catalog import ManifestCatalog
from quorate.backup.restore_batches import RecordRules
from quorate.backup.restore_checks import group_refusals, replication_refusal, size_refusals, topic_refusals
from quorate.backup.restore_config import RestoreConfig
from quorate.backup.restore_ledger import RestoreDone, RestoreLedger, settings_digest
from quorate.backup.restore_plan import RestorePlan, TargetTopic, plan_topic, spans_by_target
from quorate.backup.restore_survey import PartitionSurvey
from quorate.backup.restore_topics import SelectedTopic, lost_offsets, select_topics
from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicId, TopicName
from quorate.pipeline.cluster_capture import now_ms
from quorate.pipeline.rate_limit import share_of_limit
from quorate.pipeline.restore_stream import PartitionAssignment, SourceSegments
from quorate.pipeline.restore_survey_task import SurveyAnswer, SurveyRequest, SurveyTask
from quorate.pipeline.restore_target import RestoreTarget
from quorate.pipeline.restore_tasks import pack_by_bytes
from quorate.pipeline.restore_write_task import TaskWritten, WriteSettings, WriteTask
from quorate.pipeline.spark_driver import JobWatcher, SparkDriver


class RestoreReport(msgspec.Struct, frozen=True, kw_only=True):
    restore_id: str | None  # None for a dry run.
    backup_id: str
    manifest_number: int
    is_resumed: bool
    topics: list[TargetTopic]
    record_count: int
    batch_bytes: int
    written_records: int  # By this run; a resumed one writes only the rest.
    written_bytes: int
    leaders_followed: int
    groups: list[str]
    seconds: float


class RestoreWatcher(JobWatcher, Protocol):
    def begins(self, what: str, task_bytes: Sequence[int]) -> None:
        """A job of so many tasks is about to run."""
        ...


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
        self._spark = spark

    def run(self, watcher: RestoreWatcher, *, is_dry: bool = False) -> RestoreReport:
        started = time.monotonic()
        with KafkaClient(self._client_config) as client:
            target = RestoreTarget(client)
            digest = settings_digest(self._config, target.cluster_id)
            opened = self._unfinished(digest, target)
            if is_dry:
                plan = opened.plan if opened else self._survey(target, watcher)[0]
                return _report(plan, opened, [], [], time.monotonic() - started, is_dry=True)
            if opened is None:
                opened = self._begin(client, target, digest, watcher)
            topic_ids = self._prepare_topics(opened, target)
            written = self._write(opened.plan, topic_ids, watcher)
            self._finish(opened, target)
            return _report(opened.plan, opened, written, [], time.monotonic() - started)

    def _unfinished(self, digest: str, target: RestoreTarget) -> OpenRestore | None:
        """The restore with these settings that was begun and is not done, unless its topics are gone."""
        restore_id = self._ledger.latest(digest)
        if restore_id is None or self._ledger.done(restore_id) is not None:
            return None
        plan = self._ledger.plan(restore_id)
        begun = self._ledger.topic_ids(restore_id)
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

    def _begin(self, client: KafkaClient, target: RestoreTarget, digest: str, watcher: RestoreWatcher) -> OpenRestore:
        plan, surveys = self._survey(target, watcher)
        identity = client.idempotent_producer().identity
        restore_id = self._ledger.next_id(digest)
        plan = msgspec.structs.replace(plan, producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)
        for topic in plan.topics:
            offset_map = spans_by_target(surveys[topic.source])
            self._ledger.put_offset_map(restore_id, plan.map_id, topic.name, offset_map)
        return OpenRestore(restore_id=restore_id, plan=self._ledger.put_plan(restore_id, plan), is_resumed=False)

    def _survey(
        self, target: RestoreTarget, watcher: RestoreWatcher
    ) -> tuple[RestorePlan, dict[TopicName, list[PartitionSurvey]]]:
        """Everything that can be wrong is found here. The plan has no producer yet."""
        restore = self._config.restore
        manifest = self._manifest()
        topics = select_topics(manifest, restore)
        self._check_target(target, manifest, topics)
        limits = target.max_batch_bytes(topics)
        requests = [request for topic in topics for request in self._requests(topic, limits[topic.target])]
        surveys = self._run_survey(requests, watcher)
        _refuse(
            sentence
            for topic in topics
            for sentence in size_refusals(topic, surveys.get(topic.source.name, []), limits[topic.target])
        )
        plan = RestorePlan(
            backup_id=self._config.backup_id,
            manifest_number=manifest.number,
            target_cluster_id=target.cluster_id,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            start_ms=restore.time_window.start_ms,
            end_ms=restore.time_window.end_ms,
            log_append_time=restore.log_append_time,
            replication_factor=restore.replication_factor,
            map_id=uuid.uuid4().hex[:12],
            topics=[
                plan_topic(
                    topic,
                    surveys.get(topic.source.name, []),
                    max_batch_bytes=limits[topic.target],
                    lost_offsets=lost_offsets(topic),
                )
                for topic in topics
            ],
        )
        return plan, {topic.source.name: surveys.get(topic.source.name, []) for topic in topics}

    def _manifest(self) -> Manifest:
        number = self._config.restore.manifest
        manifest = self._catalog.latest() if number is None else self._catalog.read(number)
        if manifest is None:
            raise BackupError(f"there is no backup {self._config.backup_id} in {self._config.storage.url}")
        return manifest

    def _check_target(self, target: RestoreTarget, manifest: Manifest, topics: list[SelectedTopic]) -> None:
        restore = self._config.restore
        existing = target.existing(topic.target for topic in topics)
        selection = restore.consumer_groups
        groups = [] if selection is None else [each.group for each in manifest.groups if selection.selects(each.group)]
        _refuse(topic_refusals(topics, existing))
        _refuse(replication_refusal(restore.replication_factor, target.broker_count))
        _refuse(group_refusals(target.active_groups(groups)))
        missing = [topic for topic in topics if topic.target not in existing]
        target.validate(missing, restore.replication_factor, restore.log_append_time)

    def _requests(self, topic: SelectedTopic, max_batch_bytes: int) -> list[SurveyRequest]:
        window = self._config.restore.time_window
        return [
            SurveyRequest(
                topic=topic.source.name,
                rules=RecordRules(
                    source_partition=partition.partition,
                    partition_count=topic.partition_count if topic.is_rehashed else None,
                    start_ms=window.start_ms,
                    end_ms=window.end_ms,
                    max_batch_bytes=max_batch_bytes,
                ),
                segments=partition.segments,
            )
            for partition in topic.partitions
            if partition.segments
        ]

    def _run_survey(
        self, requests: list[SurveyRequest], watcher: RestoreWatcher
    ) -> dict[TopicName, list[PartitionSurvey]]:
        tasks = pack_by_bytes(requests, lambda request: request.size_bytes)
        surveys: dict[TopicName, list[PartitionSurvey]] = {}
        if not tasks:
            return surveys
        spark = self._spark()
        watcher.begins("survey", [sum(request.size_bytes for request in task) for task in tasks])
        rows = spark.run(SurveyTask(self._config.location), [msgspec.msgpack.encode(task) for task in tasks], watcher)
        for answer in (each for row in rows for each in msgspec.msgpack.decode(row, type=list[SurveyAnswer])):
            if answer.survey is None:
                raise BackupError(
                    f"{answer.damage}; nothing was restored: leave topic {answer.topic} out, or name an older "
                    "manifest in restore.manifest"
                )
            surveys.setdefault(answer.topic, []).append(answer.survey)
        return surveys

    def _prepare_topics(self, opened: OpenRestore, target: RestoreTarget) -> dict[TopicName, TopicId]:
        known = self._ledger.topic_ids(opened.restore_id)
        if known is not None:
            return known
        # Nothing of this restore was written yet, so whatever is there is somebody else's.
        existing = target.existing(topic.name for topic in opened.plan.topics)
        for name, topic in existing.items():
            if topic.record_offsets:
                raise QuorateError(f"target topic {name} is not empty any more: delete it and restore again")
        return self._ledger.put_topic_ids(opened.restore_id, target.create(opened.plan))

    def _write(
        self, plan: RestorePlan, topic_ids: dict[TopicName, TopicId], watcher: RestoreWatcher
    ) -> list[TaskWritten]:
        tasks = pack_by_bytes(
            assignments(plan, self._catalog.read(plan.manifest_number)), lambda each: each.estimated_bytes
        )
        if not tasks:
            return []
        spark = self._spark()
        limit = self._config.restore.rate_limit_bytes_per_second
        settings = WriteSettings(
            location=self._config.location,
            client=self._client_config,
            producer_id=plan.producer_id,
            producer_epoch=plan.producer_epoch,
            topic_ids=topic_ids,
            bytes_per_second=share_of_limit(limit, tasks=len(tasks), slots=spark.slots()),
        )
        watcher.begins("restore", [sum(each.estimated_bytes for each in task) for task in tasks])
        rows = spark.run(WriteTask(settings), [msgspec.msgpack.encode(task) for task in tasks], watcher)
        return [msgspec.msgpack.decode(row, type=TaskWritten) for row in rows]

    def _finish(self, opened: OpenRestore, target: RestoreTarget) -> None:
        for problem in target.unwritten(opened.plan.topics):
            raise QuorateError(f"the restore is not complete: {problem}; run it again")
        for topic in opened.plan.topics:
            target.finish(topic, opened.plan.log_append_time)
        self._ledger.put_done(
            opened.restore_id, RestoreDone(finished_ms=now_ms(), record_count=opened.plan.record_count)
        )


def assignments(plan: RestorePlan, manifest: Manifest) -> list[PartitionAssignment]:
    """One for each target partition that gets records."""
    found: list[PartitionAssignment] = []
    for topic in plan.topics:
        entry = manifest.find(topic.source_topic_id, topic.source)
        assert entry is not None, "a manifest lost a topic that it held"
        segments = {partition.partition: partition.segments for partition in entry.partitions}
        found += [
            PartitionAssignment(
                topic=topic.name,
                partition=target.partition,
                sources=[
                    SourceSegments(
                        rules=RecordRules(
                            source_partition=source.partition,
                            partition_count=topic.partition_count if topic.is_rehashed else None,
                            start_ms=plan.start_ms,
                            end_ms=plan.end_ms,
                            max_batch_bytes=topic.max_batch_bytes,
                        ),
                        excluded=source.excluded,
                        segments=segments[source.partition],
                        segment_counts=source.segment_counts,
                    )
                    for source in target.sources
                ],
            )
            for target in topic.partitions
            if target.record_count
        ]
    return found


def _refuse(sentences: Iterable[str]) -> None:
    found = list(sentences)
    if found:
        more = f" (and {len(found) - 1} more like it)" if len(found) > 1 else ""
        raise QuorateError(f"{found[0]}{more}")


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
