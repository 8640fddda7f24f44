"""Writes target partitions from the backup, each record once, however often and by however many it is tried.

Runs in a Spark worker. Every attempt of every run of a restore writes as the same idempotent producer, and gives each
record its target offset for a sequence. The leader appends a batch only where its sequence follows the last one, so
what any attempt can add at offset i is record i, or nothing. Where an attempt finds that another was faster, it looks
where the partition ends now and goes on from there.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from quorate.backup.restore_batches import as_produced
from quorate.backup.storage import ObjectStorage, open_storage
from quorate.backup.storage_url import StorageLocation
from quorate.client.config import ClientConfig
from quorate.client.idempotent_producer import IdempotentProducer, ProducerIdentity
from quorate.client.kafka_client import KafkaClient
from quorate.client.topic_partition import TopicPartition
from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.kernel.ids import ProducerEpoch, ProducerId, TopicId, TopicName
from quorate.pipeline.rate_limit import RateLimit
from quorate.pipeline.restore_stream import PartitionAssignment, batches_from
from quorate.pipeline.task_runner import Outcome

_SEQUENCE_SPAN = 2**31
_SEQUENCE_ERRORS = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
# Another attempt may be at work for as long as it makes progress; without any, it waits for nobody.
_PATIENCE_S = 30.0
_PAUSE_S = 0.2


class WriteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of a run share."""

    location: StorageLocation  # Of the backup's own folder.
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
        self._settings = settings

    def __call__(self, task: bytes) -> Outcome:
        settings = self._settings
        assignments = msgspec.msgpack.decode(task, type=list[PartitionAssignment])
        storage = open_storage(settings.location)
        limit = RateLimit(settings.bytes_per_second, now=time.monotonic, sleep=time.sleep)
        identity = ProducerIdentity(settings.producer_id, settings.producer_epoch)
        records = batch_bytes = 0
        with KafkaClient(settings.client) as client:
            _check_topics(client, settings.topic_ids, assignments)
            producer = client.idempotent_producer(identity)
            for assignment in assignments:
                writer = PartitionWriter(client, producer, storage, assignment, on_sent=limit.take)
                writer.write()
                records += writer.record_count
                batch_bytes += writer.batch_bytes
            written = TaskWritten(
                record_count=records, batch_bytes=batch_bytes, leaders_followed=client.leaders_followed
            )
        return Outcome(msgspec.msgpack.encode(written), batch_bytes, records)


class PartitionWriter:
    def __init__(
        self,
        client: KafkaClient,
        producer: IdempotentProducer,
        storage: ObjectStorage,
        assignment: PartitionAssignment,
        *,
        on_sent: Callable[[int], None],
    ) -> None:
        self.record_count = 0
        self.batch_bytes = 0
        self._client = client
        self._producer = producer
        self._storage = storage
        self._assignment = assignment
        self._on_sent = on_sent
        self._name = TopicPartition(assignment.topic, assignment.partition)
        self._unacknowledged: deque[int] = deque()  # Records of each batch on its way.

    def write(self) -> None:
        """Return when the target has every record."""
        total = self._assignment.record_count
        position = self._end()
        progress_at = time.monotonic()
        while position < total:
            try:
                position = self._write_from(position)
            except KafkaError as error:
                if error.code not in _SEQUENCE_ERRORS:
                    raise
                time.sleep(_PAUSE_S)
                found = self._end()
                if found != position:
                    position, progress_at = found, time.monotonic()
                elif time.monotonic() - progress_at > _PATIENCE_S:
                    raise self._disturbed(f"it ends at offset {position} and its leader says: {error}") from None
        if position > total:
            raise self._disturbed(f"it ends at offset {position}, and the restore has {total} records for it")

    def _write_from(self, position: int) -> int:
        topic, partition = self._name
        self._unacknowledged.clear()
        self._producer.set_next_sequence(topic, partition, position % _SEQUENCE_SPAN)
        for produced in self._producer.send_all(topic, partition, self._outgoing(position)):
            if produced.base_offset not in (None, position):
                raise self._disturbed(f"a batch for offset {position} got offset {produced.base_offset}")
            count = self._unacknowledged.popleft()
            position += count
            self.record_count += count
        return position

    def _outgoing(self, position: int) -> Iterator[bytearray]:
        for batch in batches_from(self._storage, self._assignment, position):
            data = as_produced(batch)
            self._unacknowledged.append(batch.record_count)
            self.batch_bytes += len(data)
            self._on_sent(len(data))
            yield data

    def _end(self) -> int:
        offset = self._client.offsets.latest([self._name])[self._name].offset
        return 0 if offset is None else offset

    def _disturbed(self, detail: str) -> QuorateError:
        return QuorateError(
            f"something other than this restore writes to {self._name} ({detail}): stop it, delete the restored "
            "topics and restore again"
        )


def _check_topics(
    client: KafkaClient, topic_ids: dict[TopicName, TopicId], assignments: list[PartitionAssignment]
) -> None:
    names = {assignment.topic for assignment in assignments}
    found = client.cluster.metadata(sorted(names)).topics
    for name in names & found.keys():
        # A broker that does not know a new topic yet is asked again when the first batch is sent.
        if found[name].error is ErrorCode.NONE and found[name].topic_id != topic_ids[name]:
            raise QuorateError(f"topic {name} was deleted while it was being restored: run the restore again")
