"""Batches, sources and ranges for the backup's tests."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from quorate.backup.planning.ranges import OffsetRange
from quorate.backup.segments.batch_summary import BatchSummary, iterate_summaries
from quorate.backup.segments.layout import FrameCodec, SegmentHeader
from quorate.backup.segments.writer import FinishedSegment, SegmentWriter
from quorate.kernel.ids import LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId, TopicName
from quorate.kernel.ports import Buffer
from quorate.records.batch import Compression
from quorate.records.builder import build_batch
from quorate.records.record import Record

TOPIC = TopicName("orders")
TOPIC_ID = TopicId(UUID("00000000-0000-0000-0000-0000000000a1"))
PARTITION = PartitionIndex(0)
CLUSTER_ID = "cluster-a"


def batch(
    base_offset: int,
    count: int = 1,
    *,
    timestamps: Sequence[int] | None = None,
    leader_epoch: int = 0,
    compression: Compression = Compression.NONE,
    value_bytes: int = 20,
    last_offset_delta: int | None = None,
) -> bytes:
    times = timestamps or [1_000 + base_offset + index for index in range(count)]
    records = [
        Record(Offset(base_offset + index), times[index], b"key", b"v" * value_bytes, ()) for index in range(count)
    ]
    return build_batch(
        records,
        base_offset=Offset(base_offset),
        leader_epoch=LeaderEpoch(leader_epoch),
        compression=compression,
        last_offset_delta=last_offset_delta,
    )


def summary_of(data: bytes) -> BatchSummary:
    ((_, summary),) = iterate_summaries(data, strict=True)
    return summary


def header(start_offset: int = 0) -> SegmentHeader:
    return SegmentHeader(
        cluster_id=CLUSTER_ID,
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=PARTITION,
        generation=1,
        start_offset=Offset(start_offset),
    )


def write_segment(
    batches: Iterable[bytes],
    *,
    start_offset: int = 0,
    end_offset: int | None = None,
    codec: FrameCodec = FrameCodec.NONE,
    frame_bytes: int = 1024,
) -> tuple[bytes, FinishedSegment]:
    upload = BytesUpload()
    writer = SegmentWriter(BytesSource.name, upload, header(start_offset), codec, frame_bytes=frame_bytes)
    for data in batches:
        writer.append(data, summary_of(data))
    finished = writer.finish(writer.next_offset if end_offset is None else Offset(end_offset))
    return bytes(upload.content), finished


def offset_range(
    start: int, end: int, *, is_first: bool = True, is_last: bool = True, estimated_bytes: int = 1
) -> OffsetRange:
    return OffsetRange(
        topic=TOPIC,
        topic_id=TOPIC_ID,
        generation=1,
        partition=PARTITION,
        leader=NodeId(7),
        leader_epoch=LeaderEpoch(0),
        start_offset=Offset(start),
        end_offset=Offset(end),
        is_first=is_first,
        is_last=is_last,
        estimated_bytes=estimated_bytes,
    )


class BytesUpload:
    """What was written so far of an object."""

    def __init__(self) -> None:
        self.content = bytearray()

    def write(self, pieces: Iterable[Buffer]) -> None:
        for piece in pieces:
            self.content += piece

    def complete(self) -> None: ...

    def abort(self) -> None: ...


class BytesSource:
    """An object in memory, as a segment reader wants it."""

    name = "object.qseg"

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size_bytes = len(data)
        self.read_bytes = 0

    def read(self, position: int, length: int) -> bytes:
        self.read_bytes += length
        return self._data[position : position + length]
