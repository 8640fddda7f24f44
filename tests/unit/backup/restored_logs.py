"""Partitions as a backup holds them, for the tests of restores: in memory, surveyed, and read back record by record."""

import uuid
from collections.abc import Sequence

from quorate.backup.manifests.manifest import SegmentEntry, segment_entry
from quorate.backup.objects.storage import ObjectStorage, StoredObject
from quorate.backup.restore.batches import RecordRules
from quorate.backup.restore.outgoing import PartitionAssignment, SourceSegments, outgoing_from
from quorate.backup.restore.survey import PartitionSurvey, Surveyor, goes_whole
from quorate.backup.segments.reader import SegmentReader
from quorate.kernel.ids import NO_PRODUCER_ID, Offset, PartitionIndex, ProducerEpoch, ProducerId
from quorate.records.batch import Compression, TimestampType
from quorate.records.builder import build_batch
from quorate.records.control import EndTransactionMarker, build_end_transaction_marker
from quorate.records.record import Record, iterate_records
from tests.unit.backup.batches import TOPIC, write_segment
from tests.unit.backup.memory_storage import MemoryStorage

MAX_BATCH_BYTES = 1_000_000
PARTITION = PartitionIndex(0)


def data_batch(
    records: Sequence[Record],
    *,
    producer_id: int = NO_PRODUCER_ID,
    epoch: int = 0,
    is_transactional: bool = False,
    compression: Compression = Compression.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    last_offset: int | None = None,
) -> bytes:
    base_offset = records[0].offset
    return build_batch(
        records,
        base_offset=base_offset,
        last_offset_delta=None if last_offset is None else last_offset - base_offset,
        compression=compression,
        timestamp_type=timestamp_type,
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(epoch if producer_id >= 0 else -1),
        base_sequence=0 if producer_id >= 0 else -1,
        is_transactional=is_transactional,
    )


def marker(offset: int, producer_id: int, *, is_commit: bool) -> bytes:
    return build_end_transaction_marker(
        EndTransactionMarker(is_commit=is_commit, coordinator_epoch=0),
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(0),
        timestamp_ms=10**12,
        base_offset=Offset(offset),
    )


def record(offset: int, timestamp: int = 1_000, key: bytes | None = b"key", value: bytes | None = None) -> Record:
    return Record(Offset(offset), timestamp, key, b"value-%d" % offset if value is None else value)


def rules(**settings: int | None) -> RecordRules:
    return RecordRules(
        keep_offsets=bool(settings.get("keep_offsets")),
        source_partition=PARTITION,
        partition_count=settings.get("partition_count"),
        start_ms=settings.get("start_ms"),
        end_ms=settings.get("end_ms"),
        max_batch_bytes=settings.get("max_batch_bytes") or MAX_BATCH_BYTES,
    )


class StoredPartition:
    """Each list of batches is a segment of its own."""

    def __init__(self, *segments: Sequence[bytes], start_offset: int = 0, storage: MemoryStorage | None = None) -> None:
        self.storage = storage or MemoryStorage()
        self.entries: list[SegmentEntry] = []
        for batches in segments:
            data, finished = write_segment(batches, start_offset=start_offset)
            name = f"{uuid.uuid4().hex}.qseg"
            self.storage.put_if_absent(name, data)
            self.entries.append(segment_entry(name, finished))
            start_offset = finished.footer.end_offset

    def survey(self, wanted: RecordRules, losses: Sequence[Offset] = ()) -> PartitionSurvey:
        """As a restore does it. Whether a segment's batches are looked at never changes what comes out."""
        surveyor, thorough = Surveyor(wanted, losses), Surveyor(wanted, losses)
        for index, entry in enumerate(self.entries):
            batches = list(SegmentReader(StoredObject(self.storage, entry.name)).batches())
            thorough.add_segment(index, entry, batches)
            if goes_whole(entry, wanted):
                surveyor.add_whole_segment(index, entry)
            else:
                surveyor.add_segment(index, entry, batches)
        found = surveyor.finish(len(self.entries))
        assert found == thorough.finish(len(self.entries))
        return found

    def source(self, wanted: RecordRules, target: PartitionIndex = PARTITION) -> SourceSegments:
        survey = self.survey(wanted)
        counts = [share.segment_counts for share in survey.shares if share.target == target]
        return SourceSegments(
            rules=wanted,
            excluded=survey.excluded,
            segments=self.entries,
            segment_counts=counts[0] if counts else [0] * len(self.entries),
        )

    def restored(self, wanted: RecordRules, position: int = 0, target: PartitionIndex = PARTITION) -> list[Record]:
        """What is written to the target partition from a position on, numbered as there."""
        return written(self.storage, [self.source(wanted, target)], position, target)


def written(
    storage: ObjectStorage, sources: list[SourceSegments], position: int, target: PartitionIndex = PARTITION
) -> list[Record]:
    assignment = PartitionAssignment(topic=TOPIC, partition=target, sources=sources)
    found: list[Record] = []
    for batch in outgoing_from(storage, assignment, position):
        for each in iterate_records(b"".join(batch.data)):
            offset = Offset(position + len(found))
            found.append(Record(offset, each.timestamp, each.key, each.value, each.headers))
    return found


def kept(partition: StoredPartition, wanted: RecordRules, end_offset: int, position: int = 0) -> list[bytes]:
    """The batches that are sent from an offset on where records keep theirs."""
    source = partition.source(wanted)
    assignment = PartitionAssignment(topic=TOPIC, partition=PARTITION, sources=[source], end_offset=Offset(end_offset))
    return [b"".join(each.data) for each in outgoing_from(partition.storage, assignment, position)]


def values(records: Sequence[Record]) -> list[bytes | None]:
    return [each.value for each in records]
