"""Whole record batches appended exactly once: own producer id, sequences, retries across leader changes.

A batch is sent as it is, but for its producer fields and checksum. Up to five requests of a partition are in flight,
all on one connection; when one of them fails, everything not acknowledged is sent again in order with the same
sequences, and the broker recognises what it already has. After an error that is raised, the same holds for the caller:
send the same batches again.
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from quorate.client.answers import check, error_code
from quorate.client.backoff import is_hopeless
from quorate.client.cluster import Cluster
from quorate.client.connection import Connection, PendingResponse
from quorate.client.errors import Disconnected, PartitionUnavailable, TopicReplaced
from quorate.client.hints import refusal_event
from quorate.client.routing import LeaderHinted, PartitionRefused, Route, Unroutable
from quorate.client.topic_partition import TopicPartition
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import (
    NO_TOPIC_ID,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicName,
)
from quorate.protocol.errors import ProtocolError
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from quorate.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quorate.records.batch import patch_producer, read_header

#: How many batches back a broker recognises a repeated one.
MAX_IN_FLIGHT: Final = 5
_SEQUENCE_SPAN: Final = 2**31
_ALL_REPLICAS: Final = -1
#: The newest version that still names topics by name, for clusters without topic ids.
_NAMES_VERSION: Final = 12
#: Only transactions use it, but it must be a sensible number.
_TRANSACTION_TIMEOUT_MS: Final = 60_000

WritableBatch = bytearray | memoryview


class ProducerIdentity(msgspec.Struct, frozen=True):
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class ProducedBatch(msgspec.Struct, frozen=True, kw_only=True):
    partition: TopicPartition
    base_sequence: int
    #: None where the broker recognised a repeated batch and no longer knows its offset.
    base_offset: Offset | None
    log_append_time_ms: int


class IdempotentProducer:
    """Threads may share it: those that use the same partition take turns."""

    def __init__(self, cluster: Cluster, identity: ProducerIdentity | None = None) -> None:
        self._cluster = cluster
        self.identity = identity or _new_identity(cluster)
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._lock = threading.Lock()

    def send(self, topic: str, partition: int, batch: WritableBatch) -> ProducedBatch:
        """Append one batch (changed in place) and return when all in-sync replicas have it."""
        (produced,) = self.send_all(topic, partition, [batch])
        return produced

    def send_all(
        self, topic: str, partition: int, batches: Iterable[WritableBatch], *, topic_id: TopicId | None = None
    ) -> Iterator[ProducedBatch]:
        """Append batches in order, several in flight. A batch's memory is needed until it is acknowledged.

        With ``topic_id`` they go to that topic or to none: ``TopicReplaced`` where another one has the name now.
        """
        name = TopicPartition(TopicName(topic), PartitionIndex(partition))
        self._cluster.want([name.topic])
        with self._lock:
            lane = self._lanes.setdefault(name, _Lane(self._cluster, name, self.identity))
        with lane.turn:
            yield from lane.send_all(batches, topic_id)

    def next_sequence(self, topic: str, partition: int) -> int:
        """The sequence that the partition's next batch will get."""
        lane = self._lanes.get(TopicPartition(TopicName(topic), PartitionIndex(partition)))
        return 0 if lane is None else lane.next_sequence

    def set_next_sequence(self, topic: str, partition: int, sequence: int) -> None:
        """Go on where an earlier run of the same producer id stopped."""
        name = TopicPartition(TopicName(topic), PartitionIndex(partition))
        with self._lock:
            self._lanes.setdefault(name, _Lane(self._cluster, name, self.identity)).next_sequence = sequence


class _Outgoing(msgspec.Struct):
    batch: WritableBatch
    base_sequence: int
    pending: PendingResponse[ProduceResponse] | None = None


class _Lane:
    """What is on its way to one partition. The head of ``_unacknowledged`` is the next to be acknowledged."""

    def __init__(self, cluster: Cluster, name: TopicPartition, identity: ProducerIdentity) -> None:
        self.turn = threading.Lock()
        self.next_sequence = 0
        self._cluster = cluster
        self._name = name
        self._identity = identity
        self._unacknowledged: deque[_Outgoing] = deque()
        self._connection: Connection | None = None
        self._route: Route | None = None
        self._topic_id: TopicId | None = None
        self._retries = cluster.new_retries()

    def send_all(self, batches: Iterable[WritableBatch], topic_id: TopicId | None) -> Iterator[ProducedBatch]:
        self._topic_id = topic_id
        self._retries = self._cluster.new_retries()
        source = iter(batches)
        try:
            while True:
                self._fill(source)
                if not self._unacknowledged:
                    return
                produced = self._attempt()
                if produced is not None:
                    self._retries.succeeded(self._cluster.clock.now_ms())
                    yield produced
        finally:
            self._start_over()
            if self._unacknowledged:
                # Whether the broker has these is not known: the caller's next attempt must have the same sequences.
                self.next_sequence = self._unacknowledged[0].base_sequence
                self._unacknowledged.clear()

    def _fill(self, source: Iterator[WritableBatch]) -> None:
        while len(self._unacknowledged) < MAX_IN_FLIGHT and (batch := next(source, None)) is not None:
            header = read_header(batch)
            if header.is_control or header.is_transactional:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD,
                    f"cannot produce to partition {self._name}: control and transactional batches need a transaction",
                )
            patch_producer(batch, 0, self._identity.producer_id, self._identity.producer_epoch, self.next_sequence)
            self._unacknowledged.append(_Outgoing(batch, self.next_sequence))
            self.next_sequence = (self.next_sequence + header.last_offset_delta + 1) % _SEQUENCE_SPAN

    def _attempt(self) -> ProducedBatch | None:
        """Send what is not sent, and wait for the head. None: it failed, and will be tried again after a delay."""
        route = self._cluster.route(self._name)
        if isinstance(route, Unroutable):
            refused = PartitionRefused(self._cluster.clock.now_ms(), self._name, route.code)
            self._refused(route.code, route.reason, refused)
            return None
        if self._topic_id is not None and route.topic_id not in (NO_TOPIC_ID, self._topic_id):
            raise TopicReplaced(self._name, self._topic_id, route.topic_id)
        if route != self._route:
            self._start_over()
            self._route = route
        try:
            with self._cluster.noticing_loss(route.node_id):
                self._send_unsent(route)
                head = self._unacknowledged[0]
                assert self._connection is not None
                assert head.pending is not None
                answer = self._connection.wait(head.pending)
        except (Disconnected, ProtocolError) as error:
            self._try_again(str(error))
            return None
        return self._take(head, answer)

    def _send_unsent(self, route: Route) -> None:
        if self._connection is None or not self._connection.is_open:
            self._start_over()
            self._connection = self._cluster.connection_to(route.address)
        for outgoing in self._unacknowledged:
            if outgoing.pending is None:
                version, request = self._request(self._connection, route, outgoing.batch)
                outgoing.pending = self._connection.send(request, ProduceResponse, version)

    def _request(self, connection: Connection, route: Route, batch: WritableBatch) -> tuple[int, ProduceRequest]:
        ceiling = _NAMES_VERSION if route.topic_id == NO_TOPIC_ID else None
        request = ProduceRequest(
            acks=_ALL_REPLICAS,
            timeout_ms=self._cluster.config.request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=self._name.topic,
                    topic_id=route.topic_id,
                    partition_data=[PartitionProduceData(index=self._name.partition, records=batch)],
                )
            ],
        )
        return connection.versions.choose(ProduceRequest, ceiling=ceiling), request

    def _take(self, head: _Outgoing, answer: ProduceResponse) -> ProducedBatch | None:
        found = answer.responses[0].partition_responses[0]
        code = error_code(found.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._unacknowledged.popleft()
            return ProducedBatch(
                partition=self._name,
                base_sequence=head.base_sequence,
                base_offset=Offset(found.base_offset) if found.base_offset >= 0 else None,
                log_append_time_ms=found.log_append_time_ms,
            )
        now_ms = self._cluster.clock.now_ms()
        event = refusal_event(now_ms, self._name, code, found.current_leader, answer.node_endpoints)
        self._refused(code, found.error_message or code.name, event)
        return None

    def _refused(self, code: ErrorCode, reason: str, event: LeaderHinted | PartitionRefused) -> None:
        if is_hopeless(code, self._retries.waited_ms(event.now_ms)):
            raise KafkaError(code, f"cannot produce to partition {self._name}: {reason}")
        self._cluster.tell(event)
        self._try_again(reason, at_once=isinstance(event, LeaderHinted))

    def _try_again(self, cause: str, *, at_once: bool = False) -> None:
        self._start_over()
        now_ms = self._cluster.clock.now_ms()
        if not self._retries.failed(now_ms, at_once=at_once):
            route = self._route
            raise PartitionUnavailable(
                self._name,
                route.node_id if route else None,
                route.address if route else None,
                cause,
                self._retries.waited_ms(now_ms),
            )
        self._cluster.clock.sleep_ms(self._retries.not_before_ms - now_ms)
        self._cluster.refresh_if_due()

    def _start_over(self) -> None:
        """Forget what is in flight: all of it will be sent again, in order and with the same sequences."""
        for outgoing in self._unacknowledged:
            if outgoing.pending is not None and self._connection is not None:
                self._connection.release(outgoing.pending)
            outgoing.pending = None
        self._connection = None


def _new_identity(cluster: Cluster) -> ProducerIdentity:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)

    def attempt() -> ProducerIdentity:
        answer = cluster.ask_any(request, InitProducerIdResponse)
        check(answer.error_code, "get a producer id")
        return ProducerIdentity(ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch))

    return cluster.retry("InitProducerId", attempt)
