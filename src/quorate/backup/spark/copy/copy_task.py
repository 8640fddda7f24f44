"""One task of a backup: fetch its ranges from their leaders, write segments, report. Runs in a Spark worker.

Safe to run twice: every attempt writes objects of its own, and only the driver's manifest makes them count.
"""

import resource
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice

import msgspec

from quorate.backup.manifests.merging import RangeResult
from quorate.backup.objects.names import attempt_name
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import ObjectStorage, StorageLocation
from quorate.backup.objects.stored_documents import now_ms
from quorate.backup.planning.ranges import OffsetRange, Task
from quorate.backup.segments.range_copier import RangeCopier, SegmentSettings
from quorate.backup.spark.session.tasks import Outcome, Report, ignore
from quorate.backup.spark.session.work_sharing import RateLimit
from quorate.client.config import ClientConfig
from quorate.client.fetch.batches import FetchedBatches, FetchRange, IsolationLevel, RangeFailed
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.decoding import decode_msgpack
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import Offset, TopicPartition
from quorate.records.errors import CorruptBatch

# Each range may have an open segment, and with it an open file and the memory of an upload.
_RANGES_AT_ONCE = 64
# More than a fetched piece has: the broken batch is among them.
_CAREFUL_BATCHES = 10_000
# Larger steps would jump over sound batches between two broken ones.
_LARGEST_STEP = 1024


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
        copied = self._copy(decode_msgpack(task, Task).ranges, report)
        return Outcome(msgspec.msgpack.encode(copied), copied.batch_bytes, copied.record_count)

    def _copy(self, ranges: list[OffsetRange], report: Report) -> TaskReport:
        settings = self._settings
        started = time.monotonic()
        attempt = attempt_name(settings.run_id, uuid.uuid4().hex)
        storage = open_storage(settings.location)
        limit = RateLimit(settings.bytes_per_second, now=time.monotonic, sleep=time.sleep)
        done: list[RangeCopier] = []
        with KafkaClient(settings.client) as client:
            for group in _groups(ranges):
                copiers = [self._copier(storage, each, attempt) for each in group]
                try:
                    _copy_together(client, copiers, settings.isolation, limit, report)
                except BaseException:
                    for copier in copiers:
                        copier.abort()
                    raise
                done += copiers
            leaders_followed = client.leaders_followed
        return TaskReport(
            results=[copier.result for copier in done if copier.result is not None],
            record_count=sum(copier.record_count for copier in done),
            batch_bytes=sum(copier.batch_bytes for copier in done),
            leaders_followed=leaders_followed,
            seconds=time.monotonic() - started,
            peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )

    def _copier(self, storage: ObjectStorage, offset_range: OffsetRange, attempt: str) -> RangeCopier:
        return RangeCopier(
            storage,
            offset_range,
            cluster_id=self._settings.cluster_id,
            attempt=attempt,
            settings=self._settings.segments,
            now_ms=now_ms,
        )


def _copy_together(
    client: KafkaClient, copiers: list[RangeCopier], isolation: IsolationLevel, limit: RateLimit, report: Report
) -> None:
    """Fetch until every copier has its result. A range that met a gap is fetched again from behind it."""
    unfinished = copiers
    while unfinished:
        by_partition = {copier.name: copier for copier in unfinished}
        broken: list[RangeCopier] = []
        wanted = [copier.fetch_range for copier in unfinished]
        for item in client.fetch_ranges(wanted, isolation=isolation, include_batch_across_end=True):
            copier = by_partition[item.range.name]
            if not isinstance(item, RangeFailed):
                size_bytes, records_before = len(item.data), copier.record_count
                copier.take(item)
                limit.take(size_bytes)
                report(size_bytes, copier.record_count - records_before)
            elif isinstance(item.error, CorruptBatch):
                broken.append(copier)
            else:
                copier.fail(item)
        for copier in broken:
            _pass_over_broken_batch(client, copier, isolation)
        unfinished = [copier for copier in unfinished if copier.result is None]


def _pass_over_broken_batch(client: KafkaClient, copier: RangeCopier, isolation: IsolationLevel) -> None:
    """Go on batch by batch up to the broken one, and find where the log can be read again.

    Where the second look finds nothing wrong, the bytes were damaged on their way, and nothing is missing.
    """
    careful = partial(_fetch_single_batches, client, isolation)
    try:
        for item in islice(careful(copier.fetch_range), _CAREFUL_BATCHES):
            copier.take(item)
    except CorruptBatch as error:
        at = copier.fetch_range

        def is_sound(offset: Offset) -> bool:
            try:
                next(careful(msgspec.structs.replace(at, start_offset=offset, end_offset=Offset(offset + 1))), None)
            except CorruptBatch:
                return False
            return True

        copier.pass_over_unreadable(find_sound_offset(is_sound, at.start_offset, at.end_offset), str(error))
    except QuorateError as error:
        copier.fail(RangeFailed(range=copier.fetch_range, next_offset=copier.fetch_range.start_offset, error=error))


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


def find_sound_offset(is_sound: Callable[[Offset], bool], broken_offset: Offset, end_offset: Offset) -> Offset:
    """The offset at which the sound batch after ``broken_offset`` begins; ``end_offset`` where there is none.

    A broken batch does not tell its last offset in a way that could be believed, and a broker answers for every offset
    inside it with the same bytes. So offsets behind it are tried, in steps that grow, and then halved.
    """
    broken, step = broken_offset, 1
    while True:
        candidate = Offset(min(broken + step, end_offset))
        if candidate == end_offset or is_sound(candidate):
            break
        broken, step = candidate, min(step * 2, _LARGEST_STEP)
    while candidate - broken > 1:
        middle = Offset((broken + candidate) // 2)
        if is_sound(middle):
            candidate = middle
        else:
            broken = middle
    return candidate


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
