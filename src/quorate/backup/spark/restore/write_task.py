"""One task of a restore: target partitions claimed, then written in a few lanes. Runs in a Spark worker.

A lane writes one partition after the other. Few batches of one partition may be in flight, so a single lane would
mostly wait for the target; what several have ready for one leader goes out together.

Each record is written once, however often and by however many it is tried, also at the same time. Every attempt of
every run of a restore writes as the same idempotent producer, and gives each record its target offset for a sequence;
that holds where records keep their offsets, too, since batches then follow each other without a gap. The leader appends
a batch only where its sequence follows the last one, so what any attempt can add at offset i is record i, or nothing.
Where an attempt finds that another was faster, or does not know what became of a batch, it looks where the partition
ends now and goes on from there. ADR 6 has the proof and its limits.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import ObjectStorage, StorageLocation
from quorate.backup.restore.claims import TAKE_OVER_S, PartitionClaim
from quorate.backup.restore.outgoing import OutgoingBatch, PartitionAssignment, outgoing_from
from quorate.backup.spark.session.tasks import Outcome, Report, ignore
from quorate.backup.spark.session.work_sharing import RateLimit
from quorate.client.config import ClientConfig
from quorate.client.errors import PartitionUnavailable, TopicReplaced
from quorate.client.idempotent_producer import AcknowledgedBatch, IdempotentProducer, ProducerIdentity
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.decoding import decode_msgpack
from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.kernel.ids import ProducerEpoch, ProducerId, TopicId, TopicName, TopicPartition
from quorate.records.batch import BatchHeader, DetachedBatch

# A writer sends nothing again that is older than this without looking at its claim, and at where the partition ends.
_BLIND_RETRY_MS = 1_000
_CONNECT_TIMEOUT_MS = 2_000
_LOOK_MS = 20  # While a writer pauses.
_SEQUENCE_SPAN = 2**31
_SEQUENCE_ERRORS = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_PAUSE_S = 0.2


class WriteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of a run share."""

    restore_id: str
    run_number: int
    location: StorageLocation  # Of the backup's own folder.
    restores: StorageLocation
    client: ClientConfig
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    topic_ids: dict[TopicName, TopicId]
    bytes_per_second: float | None = None  # This task's share of the limit.


class TaskWritten(msgspec.Struct, frozen=True, kw_only=True):
    """What this attempt did itself."""

    record_count: int
    batch_bytes: int
    leaders_followed: int


class Claim(Protocol):
    """Raises when another attempt has taken over."""

    def check(self) -> None: ...

    def check_now(self) -> None: ...


class PartitionWriter:
    """Told what becomes of the batches that it sends. It raises what no further attempt can repair."""

    def __init__(
        self,
        client: KafkaClient,
        producer: IdempotentProducer,
        storage: ObjectStorage,
        assignment: PartitionAssignment,
        claim: Claim,
        *,
        topic_id: TopicId,
        on_sent: Callable[[int], None],
        patience_s: float,
    ) -> None:
        self.name = TopicPartition(assignment.topic, assignment.partition)
        self.record_count = 0
        self.batch_bytes = 0
        self.is_done = False
        #: When to ``resume``; None while something is being sent.
        self.paused_until: float | None = None
        self._client = client
        self._producer = producer
        self._storage = storage
        self._assignment = assignment
        self._claim = claim
        self._topic_id = topic_id
        self._on_sent = on_sent
        self._patience_s = patience_s
        self._unacknowledged: deque[OutgoingBatch] = deque()
        self._position = 0  # Everything before it has arrived.
        self._attempted_from = 0
        self._progress_at = 0.0
        self._failure: KafkaError | PartitionUnavailable | None = None

    def begin(self) -> None:
        self._progress_at = time.monotonic()
        self._write_from(self._end())

    def produced(self, batch: AcknowledgedBatch) -> None:
        if batch.base_offset not in (None, self._position):
            raise self._disturbed(f"a batch for offset {self._position} got offset {batch.base_offset}")
        placed = self._unacknowledged.popleft()
        self._position += placed.offset_count
        self.record_count += placed.record_count

    def ended(self, error: QuorateError | None) -> None:
        """All was sent, or it is not known what became of what was not acknowledged."""
        if error is None:
            self._write_from(self._position)
            return
        if not isinstance(error, KafkaError | PartitionUnavailable):
            raise error
        if isinstance(error, KafkaError) and not (error.retriable or error.code in _SEQUENCE_ERRORS):
            raise error
        self._failure = error
        self.paused_until = time.monotonic() + _PAUSE_S

    def is_due(self, now: float) -> bool:
        return self.paused_until is not None and self.paused_until <= now

    def resume(self) -> None:
        """Look where the partition ends now, and go on from there."""
        self._claim.check_now()
        found = self._end()
        if found != self._attempted_from:
            self._progress_at = time.monotonic()
        elif time.monotonic() - self._progress_at > self._patience_s:
            raise self._stuck() from None
        self.paused_until = None
        self._write_from(found)

    def _write_from(self, position: int) -> None:
        total = self._assignment.log_end_offset
        self._position = self._attempted_from = position
        if position > total:
            raise self._disturbed(f"it ends at offset {position}, and the restore ends at {total}")
        if position == total:
            self.is_done = True
            return
        self._unacknowledged.clear()
        self._producer.set_next_sequence(*self.name, position % _SEQUENCE_SPAN)
        self._producer.begin(*self.name, self._outgoing(position), topic_id=self._topic_id)

    def _outgoing(self, position: int) -> Iterator[DetachedBatch]:
        for batch in outgoing_from(self._storage, self._assignment, position):
            size_bytes = batch.data.size_bytes
            self._unacknowledged.append(batch)
            self.batch_bytes += size_bytes
            self._on_sent(size_bytes)
            self._claim.check()
            yield batch.data

    def _end(self) -> int:
        """Where the target ends. Its last batch says whether all of them are the restore's.

        An own batch stands at the offset that is its sequence only where nothing foreign, and nothing twice, stands
        before it. Without this look, an attempt that begins behind a foreign record would leave out one of its own.
        """
        end = self._client.offsets.latest([self.name])[self.name].offset or 0
        if end:
            header = self._last_header(end)
            if header is None or header.producer_id != self._producer.identity.producer_id:
                raise self._disturbed(f"its record at offset {end - 1} is not of this restore")
            if header.last_sequence != (end - 1) % _SEQUENCE_SPAN:
                raise self._disturbed(f"its record at offset {end - 1} has sequence {header.last_sequence}")
        return end

    def _last_header(self, end: int) -> BatchHeader | None:
        topic, partition = self.name
        headers = [
            batch.header
            for piece in self._client.fetch_range(topic, partition, end - 1, end, max_bytes=1)
            for batch in piece.walk()
        ]
        return headers[-1] if headers else None

    def _stuck(self) -> QuorateError:
        error = self._failure
        if isinstance(error, KafkaError) and error.code in _SEQUENCE_ERRORS:
            return self._disturbed(str(error))
        return QuorateError(f"{self.name} could not be written: {error}; run the restore again when it can")

    def _disturbed(self, detail: str) -> QuorateError:
        return QuorateError(
            f"{self.name} is not as this restore left it ({detail}): stop whatever else writes to it, delete the "
            "restored topics and restore again"
        )


class WriteTask:
    """The work of a job: called with the encoded lanes of one task."""

    def __init__(self, settings: WriteSettings) -> None:
        self.settings = settings

    def __call__(self, task: bytes, report: Report = ignore, /) -> Outcome:
        written = self._write(decode_msgpack(task, list[list[PartitionAssignment]]), report)
        return Outcome(msgspec.msgpack.encode(written), written.batch_bytes, written.record_count)

    def _write(self, lanes: list[list[PartitionAssignment]], report: Report) -> TaskWritten:
        settings = self.settings
        claims = [_claim(settings, lane) for lane in lanes]
        if not all(claim.is_first for lane in claims for claim in lane):
            time.sleep(TAKE_OVER_S)
        sending = msgspec.structs.replace(
            settings.client,
            retry_timeout_ms=_BLIND_RETRY_MS,
            connect_timeout_ms=min(_CONNECT_TIMEOUT_MS, settings.client.connect_timeout_ms),
        )
        with KafkaClient(settings.client) as client, KafkaClient(sending) as sender:
            _check_topics(client, settings.topic_ids, [each for lane in lanes for each in lane])
            producer = sender.idempotent_producer(ProducerIdentity(settings.producer_id, settings.producer_epoch))
            writers = self._writers(lanes, claims, client, producer, report)
            try:
                done = write_in_lanes(writers, producer, report)
            except TopicReplaced as error:
                raise _deleted(error.partition.topic) from None
            return TaskWritten(
                record_count=sum(writer.record_count for writer in done),
                batch_bytes=sum(writer.batch_bytes for writer in done),
                leaders_followed=client.leaders_followed + sender.leaders_followed,
            )

    def _writers(
        self,
        lanes: list[list[PartitionAssignment]],
        claims: list[list[PartitionClaim]],
        client: KafkaClient,
        producer: IdempotentProducer,
        report: Report,
    ) -> list[deque[PartitionWriter]]:
        settings = self.settings
        storage = open_storage(settings.location)
        limit = RateLimit(settings.bytes_per_second, now=time.monotonic, sleep=time.sleep)

        def sent(size_bytes: int) -> None:
            report(size_bytes, 0)
            limit.take(size_bytes)

        def writer(assignment: PartitionAssignment, claim: PartitionClaim) -> PartitionWriter:
            return PartitionWriter(
                client,
                producer,
                storage,
                assignment,
                claim,
                topic_id=settings.topic_ids[assignment.topic],
                on_sent=sent,
                patience_s=settings.client.retry_timeout_ms / 1000,
            )

        return [deque(map(writer, lane, own)) for lane, own in zip(lanes, claims, strict=True)]


def write_in_lanes(
    lanes: Sequence[deque[PartitionWriter]], producer: IdempotentProducer, report: Report = ignore
) -> list[PartitionWriter]:
    """One partition of each lane at a time, until the target has every record. What one writer raises ends all.

    Returns the writers in the order in which they were done.
    """
    done: list[PartitionWriter] = []
    at_work: dict[TopicPartition, tuple[PartitionWriter, deque[PartitionWriter]]] = {}

    def advance(lane: deque[PartitionWriter]) -> None:
        """Begin with the next partition of the lane that has something to be written."""
        while lane:
            writer = lane.popleft()
            writer.begin()
            if not writer.is_done:
                at_work[writer.name] = writer, lane
                return
            done.append(writer)

    def settle(writer: PartitionWriter) -> None:
        if writer.is_done:
            _, lane = at_work.pop(writer.name)
            done.append(writer)
            advance(lane)

    for lane in lanes:
        advance(lane)
    while at_work:
        paused = [writer for writer, _ in at_work.values() if writer.paused_until is not None]
        for writer in paused:
            if writer.is_due(time.monotonic()):
                writer.resume()
                settle(writer)
        if not producer.is_sending:
            time.sleep(_LOOK_MS / 1000)
        for outcome in producer.step(_LOOK_MS) if paused else producer.step():
            writer, _ = at_work[outcome.partition]
            if isinstance(outcome, AcknowledgedBatch):
                records_before = writer.record_count
                writer.produced(outcome)
                report(0, writer.record_count - records_before)
            else:
                writer.ended(outcome.error)
                settle(writer)
    return done


def _claim(settings: WriteSettings, assignments: list[PartitionAssignment]) -> list[PartitionClaim]:
    restores = open_storage(settings.restores)
    return [
        PartitionClaim(
            restores,
            settings.restore_id,
            each.topic,
            each.partition,
            run_number=settings.run_number,
            now=time.monotonic,
        )
        for each in assignments
    ]


def _check_topics(
    client: KafkaClient, topic_ids: dict[TopicName, TopicId], assignments: list[PartitionAssignment]
) -> None:
    names = {assignment.topic for assignment in assignments}
    found = client.cluster.metadata(sorted(names)).topics
    for name in names & found.keys():
        # A broker that does not know a new topic yet is asked again when the first batch is sent.
        if found[name].error is ErrorCode.NONE and found[name].topic_id != topic_ids[name]:
            raise _deleted(name)


def _deleted(topic: TopicName) -> QuorateError:
    return QuorateError(f"topic {topic} was deleted while it was being restored: run the restore again")
