"""Whole record batches appended exactly once: own producer id, sequences, retries across leader changes.

A batch is sent as it is, but for its producer fields and checksum. Several partitions are written at a time, by one
thread: what is ready for the partitions of one leader goes into one request. Up to five batches of a partition are in
flight, all on one connection; when one of them fails, everything not acknowledged is sent again in order with the same
sequences, and the broker recognises what it already has. After an error, the same holds for the caller: send the same
batches again.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

import msgspec

from quorate.client.cluster import Cluster
from quorate.client.connections.connection import Connection, PendingResponse, first_to_come
from quorate.client.errors import Disconnected, PartitionUnavailable, TopicReplaced, check, error_code
from quorate.client.retries import Retries, is_hopeless
from quorate.client.routing import LeaderHinted, PartitionRefused, Route, Unroutable, refusal_event
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.kernel.ids import (
    NO_TOPIC_ID,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicName,
    TopicPartition,
)
from quorate.kernel.native import native
from quorate.protocol.errors import ProtocolError
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from quorate.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quorate.records.batch import DetachedBatch, patch_producer, read_header

#: How many batches back a broker recognises a repeated one.
MAX_IN_FLIGHT: Final = 5
#: Of one partition. Large batches are fewer at a time.
_MAX_IN_FLIGHT_BYTES: Final = 4 * 1024 * 1024
#: A request is not made larger than this for a further partition.
_REQUEST_BYTES: Final = 1024 * 1024
_SEQUENCE_SPAN: Final = 2**31
_ALL_REPLICAS: Final = -1
#: The newest version that still names topics by name, for clusters without topic ids.
_NAMES_VERSION: Final = 12
_LONG_MS: Final = 3_600_000
#: Only transactions use it, but it must be a sensible number.
_TRANSACTION_TIMEOUT_MS: Final = 60_000


class ProducerIdentity(msgspec.Struct, frozen=True):
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class AcknowledgedBatch(msgspec.Struct, frozen=True, kw_only=True):
    partition: TopicPartition
    base_sequence: int
    #: None where the broker recognised a repeated batch and no longer knows its offset.
    base_offset: Offset | None
    log_append_time_ms: int


class SendingEnded(msgspec.Struct, frozen=True, kw_only=True):
    partition: TopicPartition
    #: None where all of its batches were acknowledged. Otherwise it is not known what became of those that were not.
    error: QuorateError | None


Outcome = AcknowledgedBatch | SendingEnded


class IdempotentProducer:
    """For one thread."""

    def __init__(self, cluster: Cluster, identity: ProducerIdentity | None = None) -> None:
        self._cluster = cluster
        self.identity = identity or _new_identity(cluster)
        self._next_sequences: dict[TopicPartition, int] = {}
        self._outflows: dict[TopicPartition, _Outflow] = {}
        self._connections: dict[Address, Connection] = {}
        self._flights: list[_Flight] = []

    def send(self, topic: str, partition: int, batch: DetachedBatch) -> AcknowledgedBatch:
        """Append one batch (its header is changed) and return when all in-sync replicas have it."""
        (produced,) = self.send_all(topic, partition, [batch])
        return produced

    def send_all(
        self, topic: str, partition: int, batches: Iterable[DetachedBatch], *, topic_id: TopicId | None = None
    ) -> Iterator[AcknowledgedBatch]:
        """Append batches in order, several in flight, to the one partition that is written now."""
        self.begin(topic, partition, batches, topic_id=topic_id)
        try:
            while self.is_sending:
                for outcome in self.step():
                    if isinstance(outcome, AcknowledgedBatch):
                        yield outcome
                    elif outcome.error is not None:
                        raise outcome.error
        finally:
            for outflow in list(self._outflows.values()):
                self._end(outflow)

    def begin(
        self, topic: str, partition: int, batches: Iterable[DetachedBatch], *, topic_id: TopicId | None = None
    ) -> None:
        """Have batches appended in order, by ``step``. A batch's memory is needed until it is acknowledged.

        With ``topic_id`` they go to that topic or to none: ``TopicReplaced`` where another one has the name now.
        """
        name = TopicPartition(TopicName(topic), PartitionIndex(partition))
        assert name not in self._outflows, f"{name} is being written already"
        self._cluster.want([name.topic])
        self._outflows[name] = _Outflow(
            name, topic_id, iter(batches), self._next_sequences.get(name, 0), self._cluster.new_retries()
        )

    @property
    def is_sending(self) -> bool:
        return bool(self._outflows)

    def step(self, max_wait_ms: int = _LONG_MS) -> list[Outcome]:
        """Send what can be sent and take the next answer: what became of batches, in the order of each partition.

        Nothing where there is no answer after ``max_wait_ms``.
        """
        self._cluster.refresh_if_due()
        outcomes = self._send_what_is_ready()
        if outcomes or not self._outflows:
            return outcomes
        if self._flights:
            return self._take_one_answer(max_wait_ms)
        self._cluster.clock.sleep_ms(min(self._next_attempt_ms() - self._cluster.clock.now_ms(), max_wait_ms))
        return []

    def next_sequence(self, topic: str, partition: int) -> int:
        """The sequence that the partition's next batch will get."""
        return self._next_sequences.get(TopicPartition(TopicName(topic), PartitionIndex(partition)), 0)

    def set_next_sequence(self, topic: str, partition: int, sequence: int) -> None:
        """Go on where an earlier run of the same producer id stopped."""
        self._next_sequences[TopicPartition(TopicName(topic), PartitionIndex(partition))] = sequence

    # Out.

    def _send_what_is_ready(self) -> list[Outcome]:
        outcomes: list[Outcome] = []
        by_leader: dict[NodeId, list[_Outflow]] = {}
        now_ms = self._cluster.clock.now_ms()
        for outflow in list(self._outflows.values()):
            if outflow.retries.not_before_ms > now_ms:
                continue
            outflow.fill(self.identity)
            if outflow.is_finished:
                outcomes.append(self._end(outflow))
            elif outflow.has_unsent and (route := self._route(outflow, outcomes)) is not None:
                by_leader.setdefault(route.node_id, []).append(outflow)
        for node_id, outflows in by_leader.items():
            outcomes += self._send_to(node_id, outflows)
        return outcomes

    def _route(self, outflow: "_Outflow", outcomes: list[Outcome]) -> Route | None:
        """Where the partition's batches go; None where that is not known now."""
        route = self._cluster.route(outflow.name)
        if isinstance(route, Unroutable):
            refused = PartitionRefused(self._cluster.clock.now_ms(), outflow.name, route.code)
            outcomes += self._refused(outflow, route.code, route.reason, refused)
            return None
        if outflow.topic_id is not None and route.topic_id not in (NO_TOPIC_ID, outflow.topic_id):
            outcomes.append(self._end(outflow, TopicReplaced(outflow.name, outflow.topic_id, route.topic_id)))
            return None
        if route != outflow.route:
            outflow.start_over()
            outflow.route = route
        return route

    def _send_to(self, node_id: NodeId, outflows: list["_Outflow"]) -> list[Outcome]:
        try:
            with self._cluster.noticing_loss(node_id):
                route = outflows[0].route
                assert route is not None
                connection = self._connection_to(route.address)
                for outflow in outflows:
                    outflow.go_by(connection)
                while group := _next_group(outflows):
                    self._send(connection, node_id, group)
        except (Disconnected, ProtocolError) as error:
            return [outcome for outflow in outflows for outcome in self._try_again(outflow, str(error))]
        return []

    def _connection_to(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = self._connections[address] = self._cluster.connection_to(address)
        return connection

    def _send(self, connection: Connection, node_id: NodeId, group: list["_Sent"]) -> None:
        routes = [each.outflow.route for each in group]
        ceiling = _NAMES_VERSION if any(route is None or route.topic_id == NO_TOPIC_ID for route in routes) else None
        version = connection.versions.choose(ProduceRequest, ceiling=ceiling)
        request = _request(group, self._cluster.config.request_timeout_ms)
        pending = connection.send(request, ProduceResponse, version)
        for each in group:
            each.outflow.sent_count += 1
        self._flights.append(_Flight(connection, pending, node_id, group))

    # In.

    def _take_one_answer(self, max_wait_ms: int) -> list[Outcome]:
        clock = self._cluster.clock
        now_ms = clock.now_ms()
        # Who waits to try again must not wait for a node that has gone silent.
        until_ms = min(self._flights[0].pending.deadline_ms, self._next_attempt_ms(), now_ms + max_wait_ms)
        flights = [(flight.connection, flight.pending) for flight in self._flights]
        ready = first_to_come(flights, clock, until_ms - now_ms)
        if ready is None and clock.now_ms() < self._flights[0].pending.deadline_ms:
            return []
        flight = self._flights.pop(ready or 0)
        try:
            with self._cluster.noticing_loss(flight.node_id):
                answer = flight.connection.wait(flight.pending, has_waited=ready is None)
        except (Disconnected, ProtocolError) as error:
            return [outcome for each in flight.current() for outcome in self._try_again(each.outflow, str(error))]
        return self._read(flight, answer)

    def _read(self, flight: "_Flight", answer: ProduceResponse) -> list[Outcome]:
        outcomes: list[Outcome] = []
        found = _by_partition(answer, flight.pending.version)
        for each in flight.sent:
            if not each.is_current:
                continue  # It was sent again since.
            part = found.get(each.key(flight.pending.version))
            if part is None:
                outcomes += self._try_again(each.outflow, "the broker's answer leaves it out")
            else:
                outcomes += self._take(each.outflow, part, answer)
        return outcomes

    def _take(self, outflow: "_Outflow", part: PartitionProduceResponse, answer: ProduceResponse) -> list[Outcome]:
        code = error_code(part.error_code)
        now_ms = self._cluster.clock.now_ms()
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            outflow.retries.succeeded(now_ms)
            return [
                AcknowledgedBatch(
                    partition=outflow.name,
                    base_sequence=outflow.acknowledge(),
                    base_offset=Offset(part.base_offset) if part.base_offset >= 0 else None,
                    log_append_time_ms=part.log_append_time_ms,
                )
            ]
        event = refusal_event(now_ms, outflow.name, code, part.current_leader, answer.node_endpoints)
        return self._refused(outflow, code, part.error_message or code.name, event)

    def _refused(
        self, outflow: "_Outflow", code: ErrorCode, reason: str, event: LeaderHinted | PartitionRefused
    ) -> list[Outcome]:
        if is_hopeless(code, outflow.retries.waited_ms(event.now_ms)):
            return [self._end(outflow, KafkaError(code, f"cannot produce to partition {outflow.name}: {reason}"))]
        self._cluster.tell(event)
        return self._try_again(outflow, reason, at_once=isinstance(event, LeaderHinted))

    def _try_again(self, outflow: "_Outflow", cause: str, *, at_once: bool = False) -> list[Outcome]:
        outflow.start_over()
        now_ms = self._cluster.clock.now_ms()
        if outflow.retries.failed(now_ms, at_once=at_once):
            return []
        route = outflow.route
        error = PartitionUnavailable(
            outflow.name,
            route.node_id if route else None,
            route.address if route else None,
            cause,
            outflow.retries.waited_ms(now_ms),
        )
        return [self._end(outflow, error)]

    def _end(self, outflow: "_Outflow", error: QuorateError | None = None) -> SendingEnded:
        outflow.start_over()
        self._next_sequences[outflow.name] = outflow.first_unacknowledged_sequence
        del self._outflows[outflow.name]
        return SendingEnded(partition=outflow.name, error=error)

    def _next_attempt_ms(self) -> int:
        """When the first of those that wait after a failure may try again; far away where none does."""
        now_ms = self._cluster.clock.now_ms()
        waiting = [each.retries.not_before_ms for each in self._outflows.values() if each.has_unsent]
        return min(waiting, default=now_ms + self._cluster.config.request_timeout_ms)


class _Outgoing(msgspec.Struct):
    batch: DetachedBatch
    base_sequence: int
    size_bytes: int


class _Outflow:
    """What is on its way to one partition."""

    def __init__(
        self,
        name: TopicPartition,
        topic_id: TopicId | None,
        source: Iterator[DetachedBatch],
        next_sequence: int,
        retries: Retries,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.retries = retries
        self.route: Route | None = None
        #: Goes up when everything has to be sent again: answers to what was sent before then say nothing.
        self.generation = 0
        self._source: Iterator[DetachedBatch] | None = source
        self._next_sequence = next_sequence
        self._connection: Connection | None = None
        #: The head is the next to be acknowledged.
        self._unacknowledged: deque[_Outgoing] = deque()
        #: So many of them, from the head on, are on their way.
        self.sent_count = 0
        self._in_flight_bytes = 0

    @property
    def is_finished(self) -> bool:
        return self._source is None and not self._unacknowledged

    @property
    def has_unsent(self) -> bool:
        return self.sent_count < len(self._unacknowledged)

    @property
    def first_unacknowledged_sequence(self) -> int:
        return self._unacknowledged[0].base_sequence if self._unacknowledged else self._next_sequence

    def next_unsent(self) -> _Outgoing | None:
        return self._unacknowledged[self.sent_count] if self.has_unsent else None

    def fill(self, identity: ProducerIdentity) -> None:
        while self._source is not None and len(self._unacknowledged) < MAX_IN_FLIGHT:
            if self._in_flight_bytes >= _MAX_IN_FLIGHT_BYTES:
                return
            batch = next(self._source, None)
            if batch is None:
                self._source = None
                return
            last_offset_delta = self._stamp(batch, identity)
            size_bytes = batch.size_bytes
            self._unacknowledged.append(_Outgoing(batch, self._next_sequence, size_bytes))
            self._in_flight_bytes += size_bytes
            self._next_sequence = (self._next_sequence + last_offset_delta + 1) % _SEQUENCE_SPAN

    def _stamp(self, batch: DetachedBatch, identity: ProducerIdentity) -> int:
        """Make the batch this producer's next one; the delta of its last offset."""
        if native is not None:
            delta = native.stamp(*batch, identity.producer_id, identity.producer_epoch, self._next_sequence)
            if delta >= 0:
                return delta
        header = read_header(batch.header)
        if header.is_control or header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"cannot produce to partition {self.name}: control and transactional batches need a transaction",
            )
        patch_producer(batch, identity.producer_id, identity.producer_epoch, self._next_sequence)
        return header.last_offset_delta

    def acknowledge(self) -> int:
        """The head has arrived; its sequence."""
        head = self._unacknowledged.popleft()
        self.sent_count -= 1
        self._in_flight_bytes -= head.size_bytes
        return head.base_sequence

    def go_by(self, connection: Connection) -> None:
        if connection is not self._connection:
            self.start_over()
            self._connection = connection

    def start_over(self) -> None:
        """Forget what is in flight: all of it will be sent again, in order and with the same sequences."""
        self.generation += 1
        self._connection = None
        self.sent_count = 0


class _Sent(msgspec.Struct):
    """One batch in a request."""

    outflow: _Outflow
    outgoing: _Outgoing
    generation: int

    @property
    def is_current(self) -> bool:
        return self.generation == self.outflow.generation

    def key(self, version: int) -> tuple[UUID | str, int]:
        """How an answer of this version names the partition."""
        route = self.outflow.route
        assert route is not None
        name, partition = self.outflow.name
        return route.topic_id if version > _NAMES_VERSION else name, partition


class _Flight(msgspec.Struct):
    """One Produce request that is on its way."""

    connection: Connection
    pending: PendingResponse[ProduceResponse]
    node_id: NodeId
    sent: list[_Sent]

    def current(self) -> list[_Sent]:
        return [each for each in self.sent if each.is_current]


def _next_group(outflows: list[_Outflow]) -> list[_Sent]:
    """What goes into the next request: at most one batch of a partition, as the protocol has it."""
    group: list[_Sent] = []
    size_bytes = 0
    for outflow in outflows:
        outgoing = outflow.next_unsent()
        if outgoing is None:
            continue
        size_bytes += outgoing.size_bytes
        if group and size_bytes > _REQUEST_BYTES:
            break
        group.append(_Sent(outflow, outgoing, outflow.generation))
    return group


def _request(group: list[_Sent], timeout_ms: int) -> ProduceRequest:
    topics: dict[tuple[TopicName, TopicId], list[PartitionProduceData]] = {}
    for each in group:
        name, partition = each.outflow.name
        route = each.outflow.route
        assert route is not None
        data = PartitionProduceData(index=partition, records=tuple(each.outgoing.batch))
        topics.setdefault((name, route.topic_id), []).append(data)
    return ProduceRequest(
        acks=_ALL_REPLICAS,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(name=name, topic_id=topic_id, partition_data=data)
            for (name, topic_id), data in topics.items()
        ],
    )


def _by_partition(answer: ProduceResponse, version: int) -> dict[tuple[UUID | str, int], PartitionProduceResponse]:
    return {
        (topic.topic_id if version > _NAMES_VERSION else topic.name, part.index): part
        for topic in answer.responses
        for part in topic.partition_responses
    }


def _new_identity(cluster: Cluster) -> ProducerIdentity:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)

    def attempt() -> ProducerIdentity:
        answer = cluster.ask_any(request, InitProducerIdResponse)
        check(answer.error_code, "get a producer id")
        return ProducerIdentity(ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch))

    return cluster.retry("InitProducerId", attempt)
