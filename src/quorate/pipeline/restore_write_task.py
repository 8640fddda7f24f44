"""One task of a restore: target partitions claimed, then written in a few lanes. Runs in a Spark worker.

A lane writes one partition after the other. Few requests of one partition may be in flight, so a single lane mostly
waits for the target; several share the task's connections, and a thread each is enough, since they wait.

Safe to run twice, also at the same time: ``restore_partition_writer`` says why.
"""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from quorate.backup.restore_claims import TAKE_OVER_S, PartitionClaim
from quorate.backup.storage import open_storage
from quorate.backup.storage_url import StorageLocation
from quorate.client.config import ClientConfig
from quorate.client.errors import TopicReplaced
from quorate.client.idempotent_producer import ProducerIdentity
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode, QuorateError
from quorate.kernel.ids import ProducerEpoch, ProducerId, TopicId, TopicName
from quorate.pipeline.rate_limit import RateLimit
from quorate.pipeline.restore_partition_writer import PartitionWriter
from quorate.pipeline.restore_stream import PartitionAssignment
from quorate.pipeline.task_runner import Outcome

# A writer sends nothing again that is older than this without looking at its claim, and at where the partition ends.
_BLIND_RETRY_MS = 1_000
_CONNECT_TIMEOUT_MS = 2_000


class WriteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of a run share."""

    restore_id: str
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

    def __call__(self, task: bytes) -> Outcome:
        written = write_lanes(self.settings, msgspec.msgpack.decode(task, type=list[list[PartitionAssignment]]))
        return Outcome(msgspec.msgpack.encode(written), written.batch_bytes, written.record_count)


def write_lanes(settings: WriteSettings, lanes: list[list[PartitionAssignment]]) -> TaskWritten:
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
        writers = Lanes(settings, client, sender).write(lanes, claims)
        return TaskWritten(
            record_count=sum(writer.record_count for writer in writers),
            batch_bytes=sum(writer.batch_bytes for writer in writers),
            leaders_followed=client.leaders_followed + sender.leaders_followed,
        )


class _LaneStopped(QuorateError):
    """Another lane has failed, and with it the task."""


class Lanes:
    """What the lanes of a task share."""

    def __init__(self, settings: WriteSettings, client: KafkaClient, sender: KafkaClient) -> None:
        self._settings = settings
        self._client = client
        self._producer = sender.idempotent_producer(ProducerIdentity(settings.producer_id, settings.producer_epoch))
        self._storage = open_storage(settings.location)
        self._limit = RateLimit(settings.bytes_per_second, now=time.monotonic, sleep=time.sleep)
        self._limiting = threading.Lock()
        self._failures: list[BaseException] = []

    def write(
        self, lanes: Sequence[Sequence[PartitionAssignment]], claims: Sequence[Sequence[PartitionClaim]]
    ) -> list[PartitionWriter]:
        """Where one lane fails, all end, and its error is raised, not what became of the others."""
        with ThreadPoolExecutor(len(lanes), thread_name_prefix="lane") as pool:
            running = [pool.submit(self._write_lane, lane, own) for lane, own in zip(lanes, claims, strict=True)]
        if self._failures:
            raise self._failures[0]
        return [writer for lane in running for writer in lane.result()]

    def _write_lane(
        self, lane: Sequence[PartitionAssignment], claims: Sequence[PartitionClaim]
    ) -> list[PartitionWriter]:
        try:
            return [self._write(assignment, claim) for assignment, claim in zip(lane, claims, strict=True)]
        except BaseException as error:
            self._failures.append(error)
            raise

    def _write(self, assignment: PartitionAssignment, claim: PartitionClaim) -> PartitionWriter:
        writer = PartitionWriter(
            self._client,
            self._producer,
            self._storage,
            assignment,
            claim,
            topic_id=self._settings.topic_ids[assignment.topic],
            on_sent=self._sent,
            patience_s=self._settings.client.retry_timeout_ms / 1000,
        )
        try:
            writer.write()
        except TopicReplaced:
            raise _deleted(assignment.topic) from None
        return writer

    def _sent(self, size_bytes: int) -> None:
        if self._failures:
            raise _LaneStopped("another partition of this task could not be written")
        with self._limiting:  # Who has to sleep holds up the others, too: the limit is the task's.
            self._limit.take(size_bytes)


def _claim(settings: WriteSettings, assignments: list[PartitionAssignment]) -> list[PartitionClaim]:
    restores = open_storage(settings.restores)
    return [
        PartitionClaim(restores, settings.restore_id, each.topic, each.partition, now=time.monotonic)
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
