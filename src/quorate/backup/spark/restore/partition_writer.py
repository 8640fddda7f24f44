"""Writes one target partition, each record once, however often and by however many it is tried. Does I/O.

Every attempt of every run of a restore writes as the same idempotent producer, and gives each record its target offset
for a sequence; that holds where records keep their offsets, too, since batches then follow each other without a gap.
The leader appends a batch only where its sequence follows the last one, so what any attempt can add at offset i is
record i, or nothing. Where an attempt finds that another was faster, or does not know what became of a batch, it looks
where the partition ends now and goes on from there. ADR 6 has the proof and its limits.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from quorate.backup.objects.storage import ObjectStorage
from quorate.backup.restore.outgoing import OutgoingBatch, PartitionAssignment, outgoing_from
from quorate.client.errors import PartitionUnavailable
from quorate.client.idempotent_producer import AcknowledgedBatch, IdempotentProducer
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.kernel.ids import TopicId, TopicPartition
from quorate.records.batch import BatchHeader, DetachedBatch

_SEQUENCE_SPAN = 2**31
_SEQUENCE_ERRORS = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_PAUSE_S = 0.2


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
            for batch in piece.batches
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
