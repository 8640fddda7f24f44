"""One task of a backup: fetch its ranges from their leaders, write segments, report. Runs in a Spark worker.

Safe to run twice: every attempt writes objects of its own, and only the driver's manifest makes them count.
"""

import resource
import time
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice

import msgspec

from quorate.backup.manifests.merging import RangeResult
from quorate.backup.objects.names import attempt_name
from quorate.backup.objects.storage import ObjectStorage, StorageLocation, open_storage
from quorate.backup.planning.ranges import OffsetRange, Task
from quorate.backup.segments.range_recorder import RangeRecorder
from quorate.backup.segments.sink import SegmentSettings
from quorate.backup.spark.range_copy import RangeCopy
from quorate.backup.spark.session.tasks import Outcome, Report, ignore
from quorate.backup.spark.session.work_sharing import RateLimit
from quorate.backup.spark.unreadable import find_sound_offset
from quorate.client.config import ClientConfig
from quorate.client.fetch.batches import FetchedBatches, FetchRange, IsolationLevel, RangeFailed
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import Offset, TopicPartition
from quorate.records.errors import CorruptBatch

# Each range may have an open segment, and with it an open file and the memory of an upload.
_RANGES_AT_ONCE = 64
# More than a fetched piece has: the broken batch is among them.
_CAREFUL_BATCHES = 10_000


class CopySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of a run share."""

    run_id: str
    cluster_id: str
    location: StorageLocation  # Of the backup's own folder.
    client: ClientConfig
    isolation: IsolationLevel
    segments: SegmentSettings
    bytes_per_second: float | None = None  # This task's share of the limit.


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    results: list[RangeResult]
    record_count: int
    batch_bytes: int
    leaders_followed: int
    seconds: float
    peak_memory_bytes: int


class CopyTask:
    """The work of a job: called with one encoded ``Task``."""

    def __init__(self, settings: CopySettings) -> None:
        self._settings = settings

    def __call__(self, task: bytes, report: Report = ignore, /) -> Outcome:
        copied = copy_ranges(self._settings, decode_task(task).ranges, report)
        return Outcome(encode_report(copied), copied.batch_bytes, copied.record_count)


def copy_ranges(settings: CopySettings, ranges: list[OffsetRange], report: Report = ignore) -> TaskReport:
    started = time.monotonic()
    attempt = attempt_name(settings.run_id, uuid.uuid4().hex)
    storage = open_storage(settings.location)
    limit = RateLimit(settings.bytes_per_second, now=time.monotonic, sleep=time.sleep)
    done: list[RangeCopy] = []
    with KafkaClient(settings.client) as client:
        for group in _groups(ranges):
            copies = [_new_copy(settings, storage, each, attempt) for each in group]
            try:
                _copy_together(client, copies, settings.isolation, limit, report)
            except BaseException:
                for copy in copies:
                    copy.abort()
                raise
            done += copies
        leaders_followed = client.leaders_followed
    return TaskReport(
        results=[copy.result for copy in done if copy.result is not None],
        record_count=sum(copy.record_count for copy in done),
        batch_bytes=sum(copy.batch_bytes for copy in done),
        leaders_followed=leaders_followed,
        seconds=time.monotonic() - started,
        peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def encode_task(task: Task) -> bytes:
    return msgspec.msgpack.encode(task)


def decode_task(data: bytes) -> Task:
    return msgspec.msgpack.decode(data, type=Task)


def encode_report(report: TaskReport) -> bytes:
    return msgspec.msgpack.encode(report)


def decode_report(data: bytes) -> TaskReport:
    return msgspec.msgpack.decode(data, type=TaskReport)


def _copy_together(
    client: KafkaClient, copies: list[RangeCopy], isolation: IsolationLevel, limit: RateLimit, report: Report
) -> None:
    """Until each has its result. One that met a gap is asked for again, behind it."""
    unfinished = copies
    while unfinished:
        by_partition = {copy.name: copy for copy in unfinished}
        broken: list[RangeCopy] = []
        wanted = [copy.fetch_range for copy in unfinished]
        for item in client.fetch_ranges(wanted, isolation=isolation, include_batch_across_end=True):
            copy = by_partition[item.range.name]
            if not isinstance(item, RangeFailed):
                size_bytes, records_before = len(item.data), copy.record_count
                copy.take(item)
                limit.take(size_bytes)
                report(size_bytes, copy.record_count - records_before)
            elif isinstance(item.error, CorruptBatch):
                broken.append(copy)
            else:
                copy.fail(item)
        for copy in broken:
            _pass_over_broken_batch(client, copy, isolation)
        unfinished = [copy for copy in unfinished if copy.result is None]


def _pass_over_broken_batch(client: KafkaClient, copy: RangeCopy, isolation: IsolationLevel) -> None:
    """Go on batch by batch up to the broken one, and find where the log can be read again.

    Where all is well at the second look, the bytes were damaged on their way, and nothing is missing.
    """
    careful = partial(_fetch_single_batches, client, isolation)
    try:
        for item in islice(careful(copy.fetch_range), _CAREFUL_BATCHES):
            copy.take(item)
    except CorruptBatch as error:
        at = copy.fetch_range

        def is_sound(offset: Offset) -> bool:
            try:
                next(careful(msgspec.structs.replace(at, start_offset=offset, end_offset=Offset(offset + 1))), None)
            except CorruptBatch:
                return False
            return True

        copy.pass_over_unreadable(find_sound_offset(is_sound, at.start_offset, at.end_offset), str(error))
    except QuorateError as error:
        copy.fail(RangeFailed(range=copy.fetch_range, next_offset=copy.fetch_range.start_offset, error=error))


def _fetch_single_batches(
    client: KafkaClient, isolation: IsolationLevel, wanted: FetchRange
) -> Iterator[FetchedBatches]:
    """A broker sends the first batch whole, however small the answer may be, and then no second one."""
    return client.fetch_range(
        wanted.topic,
        wanted.partition,
        wanted.start_offset,
        wanted.end_offset,
        isolation=isolation,
        topic_id=wanted.topic_id,
        max_bytes=1,
        include_batch_across_end=True,
    )


def _groups(ranges: Iterable[OffsetRange]) -> Iterator[list[OffsetRange]]:
    """Ranges that are fetched together: not too many, and none of a partition that is among them."""
    group: dict[TopicPartition, OffsetRange] = {}
    for each in ranges:
        name = TopicPartition(each.topic, each.partition)
        if name in group or len(group) == _RANGES_AT_ONCE:
            yield list(group.values())
            group = {}
        group[name] = each
    if group:
        yield list(group.values())


def _new_copy(settings: CopySettings, storage: ObjectStorage, offset_range: OffsetRange, attempt: str) -> RangeCopy:
    recorder = RangeRecorder(
        storage, offset_range, cluster_id=settings.cluster_id, attempt=attempt, settings=settings.segments
    )
    return RangeCopy(offset_range, recorder, _now_ms)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
