"""What a restore writes, decided once and then never changed: every later run of it follows this plan."""

import re
from typing import Literal

import msgspec

from quorate.backup.objects.names import is_safe_segment
from quorate.backup.objects.stored_documents import (
    BatchBytes,
    Count,
    DocumentFault,
    Generation,
    ManifestNumber,
    PartitionCount,
    RecordTimestamp,
    StoredOffset,
    StoredPartition,
    StoredProducerEpoch,
    StoredProducerId,
    one_line,
)
from quorate.backup.restore.batches import RecordRules, Span
from quorate.backup.restore.survey import PartitionSurvey
from quorate.backup.restore.topics import SelectedTopic, lost_offsets, missing_partitions
from quorate.backup.restore.transactions import ExcludedTransaction
from quorate.kernel.ids import Offset, PartitionIndex, TopicId, TopicName

FORMAT_VERSION = 2

_MAP_ID = re.compile(r"[0-9a-z]{1,36}")


class SourceShare(msgspec.Struct, frozen=True, kw_only=True):
    """What a target partition gets of one source partition."""

    partition: StoredPartition
    segment_counts: list[Count]
    excluded: list[ExcludedTransaction] = []

    @property
    def record_count(self) -> int:
        return sum(self.segment_counts)


class KeptOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Where a target log begins and ends if its records keep their offsets."""

    log_start_offset: StoredOffset
    log_end_offset: StoredOffset


class TargetPartition(msgspec.Struct, frozen=True, kw_only=True):
    """The record at target offset i is the i-th of the sources' records, one source after the other.

    Unless offsets are kept: then it is the record that had that offset at the source.
    """

    partition: StoredPartition
    sources: list[SourceShare]
    kept_offsets: KeptOffsets | None = None

    @property
    def log_end_offset(self) -> Offset:
        return Offset(self.record_count) if self.kept_offsets is None else self.kept_offsets.log_end_offset

    @property
    def record_count(self) -> int:
        return sum(source.record_count for source in self.sources)


class TargetTopic(msgspec.Struct, frozen=True, kw_only=True):
    source: TopicName
    source_topic_id: TopicId
    generation: Generation
    name: TopicName
    partition_count: PartitionCount
    is_rehashed: bool
    max_batch_bytes: BatchBytes
    configs: dict[str, str]
    batch_bytes: Count
    lost_offsets: Count
    missing_partitions: Count
    unfinished_transactions: Count
    partitions: list[TargetPartition]

    @property
    def record_count(self) -> int:
        return sum(partition.record_count for partition in self.partitions)


class RestorePlan(msgspec.Struct, frozen=True, kw_only=True):
    format_version: int = FORMAT_VERSION
    backup_id: str
    manifest_number: ManifestNumber
    target_cluster_id: str
    #: All that the restore writes has this identity, and the target offset for its sequence.
    producer_id: StoredProducerId
    producer_epoch: StoredProducerEpoch
    start_ms: RecordTimestamp | None
    end_ms: RecordTimestamp | None
    log_append_time: Literal["original", "new"]
    preserve_offsets: bool = False
    replication_factor: int | None
    map_id: str  # Of the offset map that was made with this plan.
    topics: list[TargetTopic]

    def rules(
        self, topic: SelectedTopic | TargetTopic, source_partition: PartitionIndex, *, max_batch_bytes: int
    ) -> RecordRules:
        """Which records of a source partition are wanted: the same when it is surveyed and when it is written."""
        return RecordRules(
            source_partition=source_partition,
            partition_count=topic.partition_count if topic.is_rehashed else None,
            start_ms=self.start_ms,
            end_ms=self.end_ms,
            max_batch_bytes=max_batch_bytes,
            keep_offsets=self.preserve_offsets,
        )

    @property
    def record_count(self) -> int:
        return sum(topic.record_count for topic in self.topics)

    @property
    def batch_bytes(self) -> int:
        return sum(topic.batch_bytes for topic in self.topics)


def check_plan(plan: RestorePlan) -> None:
    """Raise ``DocumentFault`` unless everything holds that a restore relies on."""
    if plan.format_version != FORMAT_VERSION:
        raise DocumentFault(f"it has format version {plan.format_version}, and only {FORMAT_VERSION} is known here")
    if not _MAP_ID.fullmatch(plan.map_id):
        raise DocumentFault(f"no offset map is called {one_line(plan.map_id)!r}")
    names = [topic.name for topic in plan.topics]
    for name in [*names, *(topic.source for topic in plan.topics)]:
        if not is_safe_segment(name):
            raise DocumentFault(f"it has a topic {one_line(name)!r}, which no cluster can have")
    if len(set(names)) < len(names):
        raise DocumentFault("it makes one topic twice")
    for topic in plan.topics:
        if [each.partition for each in topic.partitions] != list(range(topic.partition_count)):
            raise DocumentFault(f"it has not the {topic.partition_count} partitions of topic {topic.name} in order")


def plan_topic(
    topic: SelectedTopic, surveys: list[PartitionSurvey], *, max_batch_bytes: int, keep_offsets: bool = False
) -> TargetTopic:
    surveys = sorted(surveys, key=lambda survey: survey.partition)
    sources: dict[PartitionIndex, list[SourceShare]] = {}
    for survey in surveys:
        for share in survey.shares:
            source = SourceShare(
                partition=survey.partition, segment_counts=share.segment_counts, excluded=survey.excluded
            )
            sources.setdefault(share.target, []).append(source)
    kept = _kept_offsets(topic) if keep_offsets else {}
    return TargetTopic(
        source=topic.source.name,
        source_topic_id=topic.source.topic_id,
        generation=topic.source.generation,
        name=topic.target,
        partition_count=topic.partition_count,
        is_rehashed=topic.is_rehashed,
        max_batch_bytes=max_batch_bytes,
        configs=topic.configs,
        batch_bytes=sum(survey.batch_bytes for survey in surveys),
        lost_offsets=lost_offsets(topic),
        missing_partitions=missing_partitions(topic),
        unfinished_transactions=sum(survey.unfinished_transactions for survey in surveys),
        partitions=[
            TargetPartition(partition=index, sources=sources.get(index, []), kept_offsets=kept.get(index))
            for index in map(PartitionIndex, range(topic.partition_count))
        ],
    )


def _kept_offsets(topic: SelectedTopic) -> dict[PartitionIndex, KeptOffsets]:
    """A log ends where the source's did, even if the backup did not get all: later records must not reuse offsets."""
    return {
        entry.partition: KeptOffsets(
            log_start_offset=entry.start_offset,
            log_end_offset=max(entry.end_offset, entry.captured_end_offset),
        )
        for entry in topic.partitions
    }


class MapSource(msgspec.Struct, frozen=True, array_like=True):
    source_partition: StoredPartition
    spans: list[Span]


def spans_by_target(surveys: list[PartitionSurvey]) -> dict[PartitionIndex, list[MapSource]]:
    """The source offsets behind each target partition's offsets, in the order of the target."""
    found: dict[PartitionIndex, list[MapSource]] = {}
    for survey in sorted(surveys, key=lambda survey: survey.partition):
        for share in survey.shares:
            found.setdefault(share.target, []).append(MapSource(survey.partition, share.spans))
    return found
