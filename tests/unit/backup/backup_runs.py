"""A partition's log as a cluster keeps it, and whole backup runs over it, task by task."""

from collections.abc import Callable, Sequence
from uuid import UUID

import msgspec

from quorate.backup.errors import StorageError
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.commit import Run, commit
from quorate.backup.manifests.manifest import GapReason, Isolation, Manifest, Mode, PartitionEntry, RunSettings
from quorate.backup.manifests.merging import RangeResult, decode_results, encode_results, merge_results
from quorate.backup.objects.storage import ObjectStorage, StoredObject
from quorate.backup.planning.cluster_snapshot import (
    ClusterSnapshot,
    PartitionSnapshot,
    TopicSelection,
    TopicSnapshot,
)
from quorate.backup.planning.planner import Plan, PlannerSettings, plan_run
from quorate.backup.planning.ranges import OffsetRange, Placement
from quorate.backup.segments.batch_summary import BatchSummary
from quorate.backup.segments.layout import FrameCodec
from quorate.backup.segments.range_copier import RangeCopier, SegmentSettings
from quorate.backup.segments.reader import SegmentReader
from quorate.kernel.ids import EpochEnd, LeaderEpoch, NodeId, Offset, ProducerEpoch, ProducerId, TopicId
from quorate.records.control import EndTransactionMarker, build_end_transaction_marker
from tests.unit.backup.batches import CLUSTER_ID, PARTITION, TOPIC, TOPIC_ID, batch, summary_of

BACKUP_ID = "nightly"
Execute = Callable[[Plan], list[RangeResult]]


class PartitionLog:
    """The leader's log of one partition. A fetch returns whole batches, from the one that holds the offset on."""

    def __init__(self, topic_id: TopicId = TOPIC_ID) -> None:
        self.topic_id = topic_id
        self.batches: list[tuple[BatchSummary, bytes]] = []
        self.log_start_offset = Offset(0)
        self.end_offset = Offset(0)
        self.leader_epoch = 0
        self._epoch_starts = [(0, 0)]  # As a leader's checkpoint file has them.
        self._written = 0
        self.held_back = 0  # How far before the end of the log readers are stopped, by a transaction or a slow replica.

    def append(
        self, count: int, *, gap: int = 0, value_bytes: int = 30, timestamps: Sequence[int] | None = None
    ) -> None:
        self._written += 1
        data = batch(
            self.end_offset + gap,
            count,
            leader_epoch=self.leader_epoch,
            value_bytes=value_bytes,
            timestamps=timestamps or [self._written * 1_000 + index for index in range(count)],
        )
        self.batches.append((summary_of(data), data))
        self.end_offset = Offset(self.end_offset + gap + count)

    def end_transaction(self) -> None:
        """A control batch, which takes an offset and is no record to anybody."""
        data = build_end_transaction_marker(
            EndTransactionMarker(is_commit=True, coordinator_epoch=0),
            producer_id=ProducerId(1),
            producer_epoch=ProducerEpoch(0),
            timestamp_ms=1,
            base_offset=self.end_offset,
        )
        self.batches.append((summary_of(data), data))
        self.end_offset = Offset(self.end_offset + 1)

    def delete_records(self, before: int) -> None:
        self.log_start_offset = max(self.log_start_offset, Offset(min(before, self.end_offset)))
        self.batches = [each for each in self.batches if each[0].last_offset >= self.log_start_offset]
        before_start = [epoch for epoch, start in self._epoch_starts if start <= self.log_start_offset]
        kept = [each for each in self._epoch_starts if each[1] > self.log_start_offset]
        self._epoch_starts = [(before_start[-1], self.log_start_offset), *kept]

    def compact(self, keep: Callable[[int], bool]) -> None:
        self.batches = [each for index, each in enumerate(self.batches) if keep(index)]

    def elect_unclean(self, log_end: int) -> None:
        """A leader takes over that has the log only up to some batch."""
        self.batches = [each for each in self.batches if each[0].last_offset < log_end]
        self.end_offset = self.batches[-1][0].next_offset if self.batches else self.log_start_offset
        self._epoch_starts = [each for each in self._epoch_starts if each[1] < self.end_offset]
        self.elect_clean()

    def elect_clean(self) -> None:
        self.leader_epoch += 1
        self._epoch_starts.append((self.leader_epoch, self.end_offset))

    def fetch(self, offset: int, limit: int = 2) -> list[tuple[BatchSummary, bytes]]:
        return [each for each in self.batches if each[0].last_offset >= offset][:limit]

    def epoch_end(self, leader_epoch: int) -> EpochEnd:
        """OffsetForLeaderEpoch as Apache Kafka answers it."""
        if leader_epoch == self.leader_epoch:
            return EpochEnd(leader_epoch=LeaderEpoch(leader_epoch), end_offset=self.end_offset)
        floor = max((epoch for epoch, _ in self._epoch_starts if epoch <= leader_epoch), default=leader_epoch)
        above = min(start for epoch, start in self._epoch_starts if epoch > leader_epoch)
        return EpochEnd(leader_epoch=LeaderEpoch(floor), end_offset=Offset(above))

    def snapshot(self, previous: Manifest | None) -> ClusterSnapshot:
        entry = partition_entry(previous, self.topic_id)
        epoch = None if entry is None else entry.last_leader_epoch
        partition = PartitionSnapshot(
            partition=PARTITION,
            leader=NodeId(7),
            leader_epoch=LeaderEpoch(self.leader_epoch),
            log_start_offset=self.log_start_offset,
            end_offset=max(self.log_start_offset, Offset(self.end_offset - self.held_back)),
            high_watermark=self.end_offset,
            log_bytes=sum(len(data) for _, data in self.batches),
            epoch_end=None if epoch is None else self.epoch_end(epoch),
        )
        topic = TopicSnapshot(name=TOPIC, topic_id=self.topic_id, partitions=(partition,))
        return ClusterSnapshot(cluster_id=CLUSTER_ID, captured_ms=1, topics=(topic,))


def copy_range(
    storage: ObjectStorage,
    log: PartitionLog,
    offset_range: OffsetRange,
    attempt: str,
    *,
    stops_after: int | None = None,
    max_bytes: int = 700,
) -> RangeResult:
    """What a task does; with ``stops_after`` it meets an error after so many batches."""
    copier = RangeCopier(
        storage,
        offset_range,
        cluster_id=CLUSTER_ID,
        attempt=attempt,
        settings=SegmentSettings(codec=FrameCodec.LZ4, max_bytes=max_bytes),
        now_ms=lambda: 0,
    )
    taken = 0
    try:
        while not copier.is_done:
            if copier.next_offset < log.log_start_offset:
                copier.skip_to(log.log_start_offset, GapReason.RETENTION)
                continue
            fetched = log.fetch(copier.next_offset)
            if not fetched and log.end_offset < offset_range.end_offset:
                return copier.finish("the log became shorter")
            if not fetched:
                break
            for summary, data in fetched:
                if copier.record(data, summary) is Placement.BEYOND:
                    break
                taken += 1
                if stops_after is not None and taken > stops_after:
                    return copier.finish("the broker went away")
        return copier.finish()
    except StorageError:
        copier.abort()
        raise


def copy_all(storage: ObjectStorage, log: PartitionLog, run_id: str) -> Execute:
    return lambda plan: [
        copy_range(storage, log, each, f"{run_id}-{number}")
        for number, task in enumerate(plan.tasks)
        for each in task.ranges
    ]


def run_backup(
    storage: ObjectStorage,
    log: PartitionLog,
    run_id: str,
    *,
    mode: Mode = Mode.INCREMENTAL,
    execute: Execute | None = None,
    range_bytes: int = 400,
) -> Manifest:
    """A whole run as the driver does it."""
    catalog = ManifestCatalog(storage, BACKUP_ID)
    catalog.probe(run_id)
    previous, number = catalog.head()
    plan = plan_run(log.snapshot(previous), previous, TopicSelection(), mode, PlannerSettings(range_bytes=range_bytes))
    results = (execute or copy_all(storage, log, run_id))(plan)
    merged = merge_results(plan, decode_results(encode_results(results)))
    manifest = commit(previous, a_run(run_id, mode, number), merged.updates, merged.requirements)
    catalog.publish(manifest, merged.segments)
    return manifest


def a_run(run_id: str, mode: Mode = Mode.INCREMENTAL, number: int | None = None) -> Run:
    return Run(
        backup_id=BACKUP_ID,
        cluster_id=CLUSTER_ID,
        run_id=run_id,
        created_ms=10,
        captured_ms=1,
        settings=RunSettings(mode=mode, isolation=Isolation.READ_UNCOMMITTED, compression="lz4"),
        number=number,
    )


def partition_entry(manifest: Manifest | None, topic_id: TopicId = TOPIC_ID) -> PartitionEntry | None:
    topic = None if manifest is None else manifest.find(topic_id, TOPIC)
    return None if topic is None or not topic.partitions else topic.partitions[0]


def read_back(storage: ObjectStorage, manifest: Manifest, topic_id: TopicId = TOPIC_ID) -> list[bytes]:
    """Every batch of the partition, as a restore would read them."""
    entry = partition_entry(manifest, topic_id)
    found: list[bytes] = []
    for segment in [] if entry is None else entry.segments:
        reader = SegmentReader(StoredObject(storage, segment.name, segment.size_bytes))
        found += [
            bytes(each.data)
            for each in reader.batches(check_crcs=True)
            if each.summary.base_offset < segment.live_end_offset
        ]
    return found


def with_partition(results: Sequence[RangeResult], **changes: object) -> list[RangeResult]:
    return [msgspec.structs.replace(each, **changes) for each in results]


OTHER_TOPIC_ID = TopicId(UUID("00000000-0000-0000-0000-0000000000b2"))
