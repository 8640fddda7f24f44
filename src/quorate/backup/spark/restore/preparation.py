"""Everything before the first change at the target: is it safe to begin, and what exactly will be written? Does I/O."""

import uuid
from collections.abc import Callable, Iterable

import msgspec

from quorate.backup.errors import BackupError
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.manifest import Manifest, SegmentEntry
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import ObjectStorage, StorageLocation, StoredObject
from quorate.backup.restore.batches import RecordRules
from quorate.backup.restore.checks import group_refusals, replication_refusal, size_refusals, topic_refusals
from quorate.backup.restore.config import RestoreConfig
from quorate.backup.restore.plan import RestorePlan, plan_topic
from quorate.backup.restore.survey import PartitionSurvey, Surveyor, goes_whole
from quorate.backup.restore.topics import SelectedTopic, select_topics
from quorate.backup.segments.verification import verified_batches, verify_hash
from quorate.backup.spark.restore.target import RestoreTarget
from quorate.backup.spark.session.job import RunWatcher, SparkDriver
from quorate.backup.spark.session.tasks import Outcome, Report, ignore
from quorate.backup.spark.session.work_sharing import pack_by_bytes
from quorate.kernel.decoding import decode_msgpack
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Offset, TopicName


class SurveyRequest(msgspec.Struct, frozen=True, kw_only=True):
    topic: TopicName  # At the source.
    rules: RecordRules
    segments: list[SegmentEntry]
    losses: list[Offset]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


class SurveyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    topic: TopicName
    survey: PartitionSurvey | None
    damage: str | None = None


class RestorePreparation:
    def __init__(self, config: RestoreConfig, catalog: ManifestCatalog, spark: Callable[[], SparkDriver]) -> None:
        self._config = config
        self._catalog = catalog
        self._spark = spark

    def plan(
        self, target: RestoreTarget, watcher: RunWatcher
    ) -> tuple[RestorePlan, dict[TopicName, list[PartitionSurvey]]]:
        """Everything that can be wrong is found here. The plan has no producer yet."""
        restore = self._config.restore
        manifest = self._manifest()
        topics = select_topics(manifest, restore)
        self._check_target(target, manifest, topics)
        limits = target.max_batch_bytes(topics)
        plan = self._plan_without_topics(manifest, target)
        requests = [request for topic in topics for request in _requests(plan, topic, limits[topic.target])]
        surveys = self._run_survey(requests, manifest, watcher)
        _refuse(
            sentence
            for topic in topics
            for sentence in size_refusals(topic, surveys.get(topic.source.name, []), limits[topic.target])
        )
        planned = [
            plan_topic(
                topic,
                surveys.get(topic.source.name, []),
                max_batch_bytes=limits[topic.target],
                keep_offsets=restore.preserve_offsets,
            )
            for topic in topics
        ]
        return msgspec.structs.replace(plan, topics=planned), {
            topic.source.name: surveys.get(topic.source.name, []) for topic in topics
        }

    def _plan_without_topics(self, manifest: Manifest, target: RestoreTarget) -> RestorePlan:
        restore = self._config.restore
        return RestorePlan(
            backup_id=self._config.backup_id,
            manifest_number=manifest.number,
            target_cluster_id=target.cluster_id,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            start_ms=restore.time_window.start_ms,
            end_ms=restore.time_window.end_ms,
            log_append_time=restore.log_append_time,
            preserve_offsets=restore.preserve_offsets,
            replication_factor=restore.replication_factor,
            map_id=uuid.uuid4().hex[:12],
            topics=[],
        )

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
        _refuse(topic_refusals(topics, existing, keep_offsets=restore.preserve_offsets))
        _refuse(replication_refusal(restore.replication_factor, target.broker_count))
        _refuse(group_refusals(target.active_groups(groups)))
        missing = [topic for topic in topics if topic.target not in existing]
        target.validate(missing, restore)

    def _run_survey(
        self, requests: list[SurveyRequest], manifest: Manifest, watcher: RunWatcher
    ) -> dict[TopicName, list[PartitionSurvey]]:
        tasks = pack_by_bytes(requests, lambda request: request.size_bytes)
        surveys: dict[TopicName, list[PartitionSurvey]] = {}
        if not tasks:
            return surveys
        spark = self._spark()
        watcher.begins("survey", [sum(request.size_bytes for request in task) for task in tasks])
        rows = spark.run(SurveyTask(self._config.location), [msgspec.msgpack.encode(task) for task in tasks], watcher)
        for answer in (each for row in rows for each in decode_msgpack(row, list[SurveyAnswer])):
            if answer.survey is None:
                self._catalog.read(manifest.number)  # Where it was pruned meanwhile, that is what is wrong.
                raise BackupError(
                    f"{answer.damage}; nothing was restored: leave topic {answer.topic} out, or name an older "
                    "manifest in restore.manifest"
                )
            surveys.setdefault(answer.topic, []).append(answer.survey)
        return surveys


def _requests(plan: RestorePlan, topic: SelectedTopic, max_batch_bytes: int) -> list[SurveyRequest]:
    return [
        SurveyRequest(
            topic=topic.source.name,
            rules=plan.rules(topic, partition.partition, max_batch_bytes=max_batch_bytes),
            segments=partition.segments,
            losses=partition.losses,
        )
        for partition in topic.partitions
        if partition.segments
    ]


def _refuse(sentences: Iterable[str]) -> None:
    found = list(sentences)
    if found:
        more = f" (and {len(found) - 1} more like it)" if len(found) > 1 else ""
        raise QuorateError(f"{found[0]}{more}")


class SurveyTask:
    """The work of a job: called with the encoded requests of one task."""

    def __init__(self, location: StorageLocation) -> None:
        self._location = location

    def __call__(self, task: bytes, report: Report = ignore, /) -> Outcome:
        requests = decode_msgpack(task, list[SurveyRequest])
        storage = open_storage(self._location)
        answers = [_answer(storage, request, report) for request in requests]
        records = sum(0 if answer.survey is None else answer.survey.record_count for answer in answers)
        return Outcome(msgspec.msgpack.encode(answers), sum(request.size_bytes for request in requests), records)


def _answer(storage: ObjectStorage, request: SurveyRequest, report: Report) -> SurveyAnswer:
    surveyor = Surveyor(request.rules, request.losses)
    for index, entry in enumerate(request.segments):
        try:
            source = StoredObject(storage, entry.name)
            if goes_whole(entry, request.rules):
                verify_hash(source, entry)
                surveyor.add_whole_segment(index, entry)
            else:
                surveyor.add_segment(index, entry, verified_batches(source, entry))
            report(entry.size_bytes, entry.record_count)
        except BackupError as error:
            return SurveyAnswer(topic=request.topic, survey=None, damage=str(error))
        except QuorateError as error:
            return SurveyAnswer(topic=request.topic, survey=None, damage=f"segment {entry.name} is damaged: {error}")
    return SurveyAnswer(topic=request.topic, survey=surveyor.finish(len(request.segments)))
