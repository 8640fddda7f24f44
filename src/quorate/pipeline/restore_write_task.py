"""One task of a restore: target partitions claimed, then written one after the other. Runs in a Spark worker.

Safe to run twice, also at the same time: ``restore_partition_writer`` says why.
"""

import time

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
    """The work of a job: called with the encoded assignments of one task."""

    def __init__(self, settings: WriteSettings) -> None:
        self.settings = settings

    def __call__(self, task: bytes) -> Outcome:
        written = write_partitions(self.settings, msgspec.msgpack.decode(task, type=list[PartitionAssignment]))
        return Outcome(msgspec.msgpack.encode(written), written.batch_bytes, written.record_count)


def write_partitions(settings: WriteSettings, assignments: list[PartitionAssignment]) -> TaskWritten:
    claims = _claim(settings, assignments)
    storage = open_storage(settings.location)
    limit = RateLimit(settings.bytes_per_second, now=time.monotonic, sleep=time.sleep)
    sending = msgspec.structs.replace(
        settings.client,
        retry_timeout_ms=_BLIND_RETRY_MS,
        connect_timeout_ms=min(_CONNECT_TIMEOUT_MS, settings.client.connect_timeout_ms),
    )
    records = batch_bytes = 0
    with KafkaClient(settings.client) as client, KafkaClient(sending) as sender:
        _check_topics(client, settings.topic_ids, assignments)
        producer = sender.idempotent_producer(ProducerIdentity(settings.producer_id, settings.producer_epoch))
        for assignment, claim in zip(assignments, claims, strict=True):
            writer = PartitionWriter(
                client,
                producer,
                storage,
                assignment,
                claim,
                topic_id=settings.topic_ids[assignment.topic],
                on_sent=limit.take,
                patience_s=settings.client.retry_timeout_ms / 1000,
            )
            try:
                writer.write()
            except TopicReplaced:
                raise _deleted(assignment.topic) from None
            records += writer.record_count
            batch_bytes += writer.batch_bytes
        return TaskWritten(
            record_count=records,
            batch_bytes=batch_bytes,
            leaders_followed=client.leaders_followed + sender.leaders_followed,
        )


def _claim(settings: WriteSettings, assignments: list[PartitionAssignment]) -> list[PartitionClaim]:
    restores = open_storage(settings.restores)
    claims = [
        PartitionClaim(restores, settings.restore_id, each.topic, each.partition, now=time.monotonic)
        for each in assignments
    ]
    if not all(claim.is_first for claim in claims):
        time.sleep(TAKE_OVER_S)
    return claims


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
