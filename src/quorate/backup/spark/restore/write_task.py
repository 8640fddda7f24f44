"""One task of a restore: target partitions claimed, then written in a few lanes. Runs in a Spark worker.

A lane writes one partition after the other. Few batches of one partition may be in flight, so a single lane would
mostly wait for the target; what several have ready for one leader goes out together.

Safe to run twice, also at the same time: ``partition_writer`` says why.
"""

import time
from collections import deque
from collections.abc import Sequence

import msgspec

from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import StorageLocation
from quorate.backup.restore.claims import TAKE_OVER_S, PartitionClaim
from quorate.backup.restore.outgoing import PartitionAssignment
from quorate.backup.spark.restore.partition_writer import PartitionWriter
from quorate.backup.spark.session.tasks import Outcome, Report, ignore
from quorate.backup.spark.session.work_sharing import RateLimit
from quorate.client.config import ClientConfig
from quorate.client.errors import TopicReplaced
from quorate.client.idempotent_producer import AcknowledgedBatch, IdempotentProducer, ProducerIdentity
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode, QuorateError
from quorate.kernel.ids import ProducerEpoch, ProducerId, TopicId, TopicName, TopicPartition

# A writer sends nothing again that is older than this without looking at its claim, and at where the partition ends.
_BLIND_RETRY_MS = 1_000
_CONNECT_TIMEOUT_MS = 2_000
_LOOK_MS = 20  # While a writer pauses.


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


class WriteTask:
    """The work of a job: called with the encoded lanes of one task."""

    def __init__(self, settings: WriteSettings) -> None:
        self.settings = settings

    def __call__(self, task: bytes, report: Report = ignore, /) -> Outcome:
        written = self._write(msgspec.msgpack.decode(task, type=list[list[PartitionAssignment]]), report)
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
