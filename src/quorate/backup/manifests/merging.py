"""Makes one commit out of the results of many tasks, some of which ran twice.

Of all results for a range exactly one is taken: the one that got furthest, and among equals the one whose attempt has
the smallest name, so that the choice does not depend on the order of arrival. The objects of the others are orphans.
"""

from collections.abc import Iterable, Sequence

import msgspec

from quorate.backup.manifests.commit import (
    AppendRange,
    ClusterIs,
    PartitionEndsAt,
    PreviousIs,
    PutFailures,
    PutGroups,
    PutPartition,
    PutTopic,
    Requirement,
    StartAfresh,
    SupersedeTail,
    Update,
)
from quorate.backup.manifests.manifest import AbortedTransactionEntry, Failure, Gap, GapReason, GroupEntry, SegmentEntry
from quorate.backup.planning.planner import PartitionPlan, Plan, TopicPlan
from quorate.backup.planning.ranges import OffsetRange, RangeKey
from quorate.backup.segments.layout import EpochStart
from quorate.kernel.decoding import decode_msgpack
from quorate.kernel.ids import Offset


class RangeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt at a range gave.

    Segments and gaps together cover the offsets from the range's start to ``reached_offset``, which is the range's end
    unless something stopped the attempt: ``failure`` says what.
    """

    key: RangeKey
    attempt: str
    reached_offset: Offset
    segments: list[SegmentEntry] = []
    gaps: list[Gap] = []
    leader_epochs: list[EpochStart] = []
    aborted_transactions: list[AbortedTransactionEntry] = []
    failure: str | None = None


class MergedRun(msgspec.Struct, frozen=True, kw_only=True):
    updates: list[Update]
    requirements: list[Requirement]
    segments: list[SegmentEntry]  # Those that the commit will name for the first time.
    failures: list[Failure]


def encode_results(results: Sequence[RangeResult]) -> bytes:
    """For the way from a task to the driver."""
    return msgspec.msgpack.encode(results)


def decode_results(data: bytes) -> list[RangeResult]:
    return decode_msgpack(data, list[RangeResult])


def merge_results(
    plan: Plan,
    results: Iterable[RangeResult],
    *,
    groups: list[GroupEntry] | None = None,
    failures: Sequence[Failure] = (),
) -> MergedRun:
    """Updates and requirements for ``commit``. ``failures`` are those that the caller knows of beside the plan's."""
    winners = _winners(results)
    merge = _Merge(winners)
    if plan.starts_afresh:
        merge.updates.append(StartAfresh())
    merge.requirements += [PreviousIs(number=plan.previous_number), ClusterIs(cluster_id=plan.cluster_id)]
    merge.failures += [*plan.failures, *failures]
    for topic in plan.topics:
        merge.add_topic(topic)
    if groups is not None:
        merge.updates.append(PutGroups(groups=groups))
    merge.updates.append(PutFailures(failures=merge.failures))
    segments = [each for update in merge.updates if isinstance(update, AppendRange) for each in update.segments]
    return MergedRun(updates=merge.updates, requirements=merge.requirements, segments=segments, failures=merge.failures)


def _winners(results: Iterable[RangeResult]) -> dict[RangeKey, RangeResult]:
    winners: dict[RangeKey, RangeResult] = {}
    for result in results:
        best = winners.get(result.key)
        if best is None or (-result.reached_offset, result.attempt) < (-best.reached_offset, best.attempt):
            winners[result.key] = result
    return winners


class _Merge:
    def __init__(self, winners: dict[RangeKey, RangeResult]) -> None:
        self._winners = winners
        self.updates: list[Update] = []
        self.requirements: list[Requirement] = []
        self.failures: list[Failure] = []

    def add_topic(self, topic: TopicPlan) -> None:
        self.updates.append(
            PutTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                generation=topic.generation,
                is_internal=topic.is_internal,
                partition_count=topic.partition_count,
                configs=topic.configs,
            )
        )
        for partition in topic.partitions:
            self._add_partition(topic, partition)

    def _add_partition(self, topic: TopicPlan, partition: PartitionPlan) -> None:
        self.updates.append(
            PutPartition(
                topic=topic.name,
                topic_id=topic.topic_id,
                partition=partition.partition,
                start_offset=partition.start_offset,
                captured_start_offset=partition.captured_start_offset,
                captured_end_offset=partition.captured_end_offset,
                captured_leader_epoch=partition.captured_leader_epoch,
            )
        )
        if partition.previous_end_offset is not None:
            self._continue(topic, partition, partition.previous_end_offset)
        appended: list[AppendRange] = []
        for each in partition.ranges:
            if not self._add_range(each, appended):
                break
        self.updates += [*appended, *_batch_across_end(appended)]

    def _continue(self, topic: TopicPlan, partition: PartitionPlan, previous_end_offset: Offset) -> None:
        name, topic_id, index = topic.name, topic.topic_id, partition.partition
        self.requirements.append(
            PartitionEndsAt(topic=name, topic_id=topic_id, partition=index, end_offset=previous_end_offset)
        )
        if partition.superseded_from_offset is not None:
            self.updates.append(
                SupersedeTail(
                    topic=name, topic_id=topic_id, partition=index, from_offset=partition.superseded_from_offset
                )
            )
        if partition.gap is not None:
            self.updates.append(
                AppendRange(
                    topic=name,
                    topic_id=topic_id,
                    partition=index,
                    start_offset=partition.gap.start_offset,
                    end_offset=partition.gap.end_offset,
                    gaps=[partition.gap],
                )
            )

    def _add_range(self, offset_range: OffsetRange, appended: list[AppendRange]) -> bool:
        """Whether the range was copied to its end, so that the next one can follow."""
        result = self._winners.get(offset_range.key)
        if result is None:
            self._fail(offset_range, offset_range.start_offset, "no task brought a result")
            return False
        if _overlaps(appended, result):
            # Its batches are of another history than those before. The next run finds out from where, by epoch.
            self._fail(offset_range, offset_range.start_offset, "the log was truncated while it was copied")
            return False
        is_whole = result.reached_offset == offset_range.end_offset
        if not is_whole and (result.failure is not None or not offset_range.is_last):
            self._fail(offset_range, result.reached_offset, result.failure or "the copy ended early")
        if result.reached_offset > offset_range.start_offset:
            appended.append(_append_update(offset_range, result))
        return is_whole

    def _fail(self, offset_range: OffsetRange, offset: Offset, message: str) -> None:
        place = f"offsets {offset} to {offset_range.end_offset - 1} were not copied"
        self.failures.append(
            Failure(topic=offset_range.topic, partition=offset_range.partition, message=f"{place}: {message}")
        )


def _append_update(offset_range: OffsetRange, result: RangeResult) -> AppendRange:
    return AppendRange(
        topic=offset_range.topic,
        topic_id=offset_range.topic_id,
        partition=offset_range.partition,
        start_offset=offset_range.start_offset,
        end_offset=result.reached_offset,
        segments=result.segments,
        gaps=result.gaps,
        leader_epochs=result.leader_epochs,
        aborted_transactions=result.aborted_transactions,
    )


def _overlaps(appended: list[AppendRange], result: RangeResult) -> bool:
    before = [segment for update in appended for segment in update.segments]
    return bool(before and result.segments) and result.segments[0].first_offset <= before[-1].last_offset


def _batch_across_end(appended: list[AppendRange]) -> list[AppendRange]:
    """Covers the rest of the last batch where it reaches beyond all that was copied: into a range that failed.

    Else the next run, which begins there, would copy that batch again. It may span more than one range.
    """
    segments = [segment for update in appended for segment in update.segments]
    if not segments or segments[-1].last_offset < appended[-1].end_offset:
        return []
    gap = Gap(
        start_offset=appended[-1].end_offset,
        end_offset=Offset(segments[-1].last_offset + 1),
        reason=GapReason.EMPTY,
        detail="inside the last batch before",
    )
    return [
        AppendRange(
            topic=appended[-1].topic,
            topic_id=appended[-1].topic_id,
            partition=appended[-1].partition,
            start_offset=gap.start_offset,
            end_offset=gap.end_offset,
            gaps=[gap],
        )
    ]
