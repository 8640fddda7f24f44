"""What a restore does with a store, without a cluster: survey, plan, and read everything that it would write."""

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice

import msgspec

from quorate.backup.errors import BackupError
from quorate.backup.manifests.manifest import Manifest
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import StorageLocation
from quorate.backup.restore.batches import RecordRules
from quorate.backup.restore.config import RestoreSection, TimeWindow
from quorate.backup.restore.offset_map import OffsetMap
from quorate.backup.restore.outgoing import outgoing_from
from quorate.backup.restore.plan import RestorePlan, plan_topic, spans_by_target
from quorate.backup.restore.survey import PartitionSurvey
from quorate.backup.restore.topics import SelectedTopic, select_topics
from quorate.backup.spark.restore.preparation import SurveyAnswer, SurveyRequest, SurveyTask
from quorate.backup.spark.restore.restore_run import assignments
from quorate.kernel.ids import ProducerEpoch, ProducerId, TopicName

MAX_BATCH_BYTES = 10_000
WHOLE = RestoreSection()
#: Ways to restore that read in different ways: whole segments, single records, by key, at their own offsets.
SECTIONS = [
    WHOLE,
    RestoreSection(time_window=TimeWindow(start=datetime(1970, 1, 1, 1, tzinfo=UTC))),
    RestoreSection(preserve_offsets=True),
]


def planned(
    location: StorageLocation, manifest: Manifest, digest: str, section: RestoreSection = WHOLE
) -> tuple[RestorePlan, dict[TopicName, OffsetMap]]:
    topics = select_topics(manifest, section)
    surveys = {topic.target: _surveyed(location, topic, section) for topic in topics}
    plan = RestorePlan(
        backup_id=manifest.backup_id,
        manifest_number=manifest.number,
        target_cluster_id="target",
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        start_ms=section.time_window.start_ms,
        end_ms=section.time_window.end_ms,
        log_append_time="original",
        preserve_offsets=section.preserve_offsets,
        replication_factor=None,
        map_id=digest.partition("-")[0],
        topics=[
            plan_topic(
                topic,
                surveys[topic.target],
                max_batch_bytes=MAX_BATCH_BYTES,
                keep_offsets=section.preserve_offsets,
            )
            for topic in topics
        ],
    )
    return plan, {topic.target: spans_by_target(surveys[topic.target]) for topic in topics}


def read_what_would_be_written(location: StorageLocation, plan: RestorePlan, manifest: Manifest) -> None:
    storage = open_storage(location)
    for assignment in assignments(plan, manifest):
        for offset in (0, 3):
            _exhaust(outgoing_from(storage, assignment, offset))


def _surveyed(location: StorageLocation, topic: SelectedTopic, section: RestoreSection) -> list[PartitionSurvey]:
    requests = [
        SurveyRequest(
            topic=topic.source.name,
            rules=RecordRules(
                source_partition=partition.partition,
                start_ms=section.time_window.start_ms,
                end_ms=section.time_window.end_ms,
                max_batch_bytes=MAX_BATCH_BYTES,
                keep_offsets=section.preserve_offsets,
            ),
            segments=partition.segments,
            losses=partition.losses,
        )
        for partition in topic.partitions
        if partition.segments
    ]
    outcome = SurveyTask(location)(msgspec.msgpack.encode(requests))
    answers = msgspec.msgpack.decode(outcome.result, type=list[SurveyAnswer])
    for answer in answers:
        if answer.damage is not None:
            raise BackupError(answer.damage)
    return [answer.survey for answer in answers if answer.survey is not None]


def _exhaust(items: Iterable[object]) -> None:
    for _ in islice(items, 100_000):
        pass
