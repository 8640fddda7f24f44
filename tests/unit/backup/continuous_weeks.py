"""Rounds of a continuous backup in virtual time: all that decides and commits is real, what is copied is only named."""

import hashlib
from collections.abc import Iterator
from itertools import pairwise

from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.commit import AppendRange, PreviousIs, PutPartition, PutTopic, Run, Update, commit
from quorate.backup.manifests.manifest import Isolation, Manifest, Mode, RunSettings, SegmentEntry
from quorate.backup.objects.names import attempt_name, is_layer_name, segment_name
from quorate.backup.objects.storage import ObjectInfo
from quorate.backup.restore.ledger import RestoreLedger
from quorate.backup.retention.compaction import Merge, MergeGroup, compacted, plan_merges
from quorate.backup.retention.holds import HoldLedger
from quorate.backup.retention.prune import Pruner
from quorate.backup.retention.prune_policy import MaintenancePolicy
from quorate.backup.spark.upkeep.maintenance import FAN_IN, Maintained, Maintenance
from quorate.kernel.ids import LeaderEpoch, Offset, PartitionIndex
from tests.unit.backup.backup_runs import BACKUP_ID
from tests.unit.backup.batches import CLUSTER_ID, TOPIC, TOPIC_ID
from tests.unit.backup.memory_storage import MemoryStorage
from tests.unit.backup.retained_backups import QuietWatcher

RECORDS_PER_ROUND = 10
MAX_SEGMENT_BYTES = 128 * 1024 * 1024


class CountingStorage(MemoryStorage):
    """Keeps segments by their size alone, and counts what is written and read of all else."""

    def __init__(self) -> None:
        super().__init__()
        self.segments: dict[str, int] = {}
        self.infos: dict[str, ObjectInfo] = {}  # Of all else.
        self.written_bytes = 0
        self.reads = 0

    def read(self, name: str) -> bytes:
        self.reads += 1
        return super().read(name)

    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return iter([self.infos[name] for name in sorted(self.infos) if name.startswith(prefix)])

    def delete(self, name: str) -> None:
        if self.segments.pop(name, None) is None:
            super().delete(name)
            self.infos.pop(name, None)

    def store(self, name: str, content: bytes) -> None:
        self.written_bytes += len(content)
        super().store(name, content)
        self.infos[name] = ObjectInfo(name=name, size_bytes=len(content), modified_ms=self.now_ms)

    @property
    def stored_bytes(self) -> int:
        return sum(len(content) for content in self.contents.values())


class ContinuousBackup:
    def __init__(
        self,
        *,
        partitions: int,
        segment_bytes: int,
        segments_per_round: int = 1,  # Of each partition.
        policy: MaintenancePolicy | None = None,
    ) -> None:
        self.storage, self.holds_storage = CountingStorage(), CountingStorage()
        self.restores_storage = CountingStorage()
        self.catalog = ManifestCatalog(self.storage, BACKUP_ID)
        self.holds = HoldLedger(self.holds_storage, BACKUP_ID)
        self.restores = RestoreLedger(self.restores_storage)
        self.partitions = [PartitionIndex(index) for index in range(partitions)]
        self.segment_bytes = segment_bytes
        self.segments_per_round = segments_per_round
        self.now_ms = 1_700_000_000_000
        self.rounds = 0
        self.copied_bytes = 0
        self.merged_bytes = 0
        self.maintained: list[Maintained] = []
        pruner = Pruner(self.storage, self.catalog, self.holds, self.restores, requests_in_flight=2)
        self.maintenance = Maintenance(policy or MaintenancePolicy(), pruner, self.compact)

    def run(self, seconds: int, *, round_seconds: int = 2) -> None:
        end_ms = self.now_ms + seconds * 1000
        while self.now_ms < end_ms:
            self._set_time(self.now_ms + round_seconds * 1000)
            self._round(self.segments_per_round)
            done = self.maintenance.run_if_due(QuietWatcher(), now_ms=self.now_ms)
            if done is not None:
                assert done.problem is None, done.problem
                self.maintained.append(done)

    def begin_with(self, segments: int) -> None:
        """As if it had run for long: so many segments of each partition are there that are merged no more."""
        self.segment_bytes, segment_bytes = MaintenancePolicy().compact_below_bytes, self.segment_bytes
        self._set_time(self.now_ms + 2000)
        self._round(segments)
        self.segment_bytes = segment_bytes

    def compact(self) -> int:
        newest, number = self.catalog.head()
        assert newest is not None
        groups = plan_merges(
            newest,
            min_segment_bytes=MaintenancePolicy().compact_below_bytes,
            max_segment_bytes=MAX_SEGMENT_BYTES,
            fan_in=FAN_IN,
        )
        run_id = hashlib.md5(b"compaction %d" % number).hexdigest()
        merges = [Merge(group=group, merged=self._merged(group, run_id)) for group in groups]
        following, taken = compacted(newest, merges, number=number, run_id=run_id, created_ms=self.now_ms)
        assert len(taken) == len(merges)
        if taken:
            self._publish(following)
        return sum(len(group.segments) for group in groups)

    @property
    def written_bytes(self) -> int:
        """Beside the data."""
        return self.storage.written_bytes + self.holds_storage.written_bytes

    def manifests_read(self, number: int | None = None) -> int:
        """Objects that a command in another process opens to know a manifest."""
        before = self.storage.reads
        catalog = ManifestCatalog(self.storage, BACKUP_ID)
        assert (catalog.latest() if number is None else catalog.read(number)) is not None
        return self.storage.reads - before

    def assert_whole(self) -> None:
        """Every manifest can be read, and everything is there that it names, and nothing else."""
        named: set[str] = set()
        for manifest in ManifestCatalog(self.storage, BACKUP_ID).history():
            named |= manifest.object_names()
        layers = {name for name in self.storage.contents if is_layer_name(name)}
        assert named == self.storage.segments.keys() | layers
        newest = self.catalog.latest()
        assert newest is not None
        for partition in newest.topics[0].partitions:
            assert (partition.start_offset, partition.end_offset) == (0, self.rounds * RECORDS_PER_ROUND)
            assert sum(each.record_count for each in partition.segments) == self.rounds * RECORDS_PER_ROUND

    def _set_time(self, now_ms: int) -> None:
        self.now_ms = now_ms
        for storage in (self.storage, self.holds_storage, self.restores_storage):
            storage.now_ms = now_ms

    def _round(self, segments: int) -> None:
        previous, number = self.catalog.head()
        run_id = hashlib.md5(b"%d" % self.rounds).hexdigest()
        start = Offset(self.rounds * RECORDS_PER_ROUND)
        self.rounds += segments
        run = Run(
            backup_id=BACKUP_ID,
            cluster_id=CLUSTER_ID,
            run_id=run_id,
            created_ms=self.now_ms,
            captured_ms=self.now_ms,
            settings=RunSettings(mode=Mode.CONTINUOUS, isolation=Isolation.READ_COMMITTED, compression="zstd"),
            number=number,
        )
        updates: list[Update] = [
            PutTopic(
                name=TOPIC,
                topic_id=TOPIC_ID,
                generation=1,
                is_internal=False,
                partition_count=len(self.partitions),
                configs={},
            )
        ]
        for partition in self.partitions:
            updates += self._append(partition, start, run_id, segments)
        requirements = [PreviousIs(number=None if previous is None else previous.number)]
        self.catalog.publish(commit(previous, run, updates, requirements), [])

    def _append(self, partition: PartitionIndex, start: Offset, run_id: str, count: int) -> list[Update]:
        starts = [Offset(start + index * RECORDS_PER_ROUND) for index in range(count + 1)]
        end = starts[-1]
        segments = [self._segment(partition, *ends, run_id, self.segment_bytes) for ends in pairwise(starts)]
        self.copied_bytes += self.segment_bytes * count
        return [
            PutPartition(
                topic=TOPIC,
                topic_id=TOPIC_ID,
                partition=partition,
                start_offset=Offset(0),
                captured_start_offset=Offset(0),
                captured_end_offset=end,
                captured_leader_epoch=LeaderEpoch(3),
            ),
            AppendRange(
                topic=TOPIC,
                topic_id=TOPIC_ID,
                partition=partition,
                start_offset=start,
                end_offset=end,
                segments=segments,
            ),
        ]

    def _segment(
        self, partition: PartitionIndex, start: Offset, end: Offset, run_id: str, size_bytes: int
    ) -> SegmentEntry:
        unique = hashlib.sha256(f"{run_id}{partition}{start}".encode()).hexdigest()
        name = segment_name(TOPIC, TOPIC_ID, partition, start, attempt_name(run_id, unique))
        self.storage.segments[name] = size_bytes
        return SegmentEntry(
            name=name,
            size_bytes=size_bytes,
            sha256=unique,
            start_offset=start,
            end_offset=end,
            first_offset=start,
            last_offset=Offset(end - 1),
            min_timestamp=self.now_ms - 2000,
            max_timestamp=self.now_ms,
            batch_count=3,
            record_count=end - start,
            batch_bytes=size_bytes * 3,
            largest_batch_bytes=size_bytes,
            is_plain=True,
        )

    def _publish(self, manifest: Manifest) -> None:
        self.catalog.publish(manifest, [])

    def _merged(self, group: MergeGroup, run_id: str) -> SegmentEntry:
        first, last = group.segments[0], group.segments[-1]
        self.merged_bytes += group.size_bytes
        return self._segment(group.partition, first.start_offset, last.end_offset, run_id, group.size_bytes)
