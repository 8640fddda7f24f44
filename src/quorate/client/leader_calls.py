"""One request about many partitions, each answered by its leader: grouped, sent to all leaders at once, retried.

What an API adds is how its request is built and its answer read (``LeaderCall``); following leaders, backing off and
the one error at the end are the same for all of them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from quorate.client.cluster import Cluster
from quorate.client.connections.connection import Connection, PendingResponse
from quorate.client.errors import Disconnected, PartitionUnavailable
from quorate.client.retries import is_hopeless
from quorate.client.routing import PartitionRefused, Route, Unroutable
from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.kernel.ids import PartitionIndex, TopicName, TopicPartition
from quorate.protocol.errors import ProtocolError
from quorate.protocol.schema import Request, Response

A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R", bound=Response)


class PartitionAnswer(msgspec.Struct, Generic[B], frozen=True):
    partition: TopicPartition
    code: ErrorCode
    value: B
    message: str | None = None


class LeaderCall(msgspec.Struct, Generic[A, B, R], frozen=True, kw_only=True):
    #: As in "cannot <what> partition orders-3".
    what: str
    response_type: type[R]
    build: Callable[[list[tuple[Route, A]]], Request]
    read: Callable[[R], Iterable[PartitionAnswer[B]]]
    #: Below it brokers do not know what is asked.
    min_version: int = 0


def call_leaders(
    cluster: Cluster, call: LeaderCall[A, B, R], items: Mapping[TopicPartition, A]
) -> dict[TopicPartition, B]:
    """The answer for every partition. Raises ``KafkaError`` or ``PartitionUnavailable`` for the first without one."""
    calls = _Round(cluster, call, items)
    calls.run(stop_at_failure=True)
    for error in calls.failed.values():
        raise error
    return calls.answered


def try_call_leaders(
    cluster: Cluster, call: LeaderCall[A, B, R], items: Mapping[TopicPartition, A]
) -> dict[TopicPartition, B | QuorateError]:
    """An answer or an error for every partition: those without an answer hold up the others' for one deadline."""
    calls = _Round(cluster, call, items)
    calls.run(stop_at_failure=False)
    return {**calls.answered, **calls.failed}


def by_topic(partitions: Iterable[TopicPartition]) -> dict[TopicName, list[PartitionIndex]]:
    grouped: dict[TopicName, list[PartitionIndex]] = {}
    for partition in partitions:
        grouped.setdefault(partition.topic, []).append(partition.partition)
    return grouped


class _Round(Generic[A, B, R]):
    def __init__(self, cluster: Cluster, call: LeaderCall[A, B, R], items: Mapping[TopicPartition, A]) -> None:
        self._cluster = cluster
        self._call = call
        self._open = dict(items)
        self.answered: dict[TopicPartition, B] = {}
        self.failed: dict[TopicPartition, QuorateError] = {}
        self._tried: dict[TopicPartition, Route] = {}
        self._causes: dict[TopicPartition, str] = {}
        self._retries = cluster.new_retries()

    def run(self, *, stop_at_failure: bool) -> None:
        """Until each is answered or failed."""
        self._cluster.want({partition.topic for partition in self._open})
        while self._open:
            self._attempt()
            if not self._open or (stop_at_failure and self.failed):
                return
            now_ms = self._cluster.clock.now_ms()
            if not self._retries.failed(now_ms):
                self._give_up(now_ms)
                return
            self._cluster.clock.sleep_ms(self._retries.not_before_ms - now_ms)
            self._cluster.refresh_if_due()

    def _attempt(self) -> None:
        in_flight = []
        for routes in self._by_leader().values():
            try:
                in_flight.append((routes, *self._send(routes)))
            except (Disconnected, ProtocolError) as error:
                self._note(routes, error)
            except KafkaError as error:  # It knows no such API, or not who we are.
                for route in routes:
                    self._fail(route.partition, error)
        for routes, connection, pending in in_flight:
            try:
                with self._cluster.noticing_loss(routes[0].node_id):
                    answer = connection.wait(pending)
            except (Disconnected, ProtocolError) as error:
                self._note(routes, error)
            else:
                for partition_answer in self._call.read(answer):
                    self._take(partition_answer)

    def _by_leader(self) -> dict[int, list[Route]]:
        leaders: dict[int, list[Route]] = {}
        for partition in list(self._open):
            route = self._cluster.route(partition)
            if isinstance(route, Unroutable):
                self._refused(partition, route.code, route.reason)
            else:
                self._tried[partition] = route
                leaders.setdefault(route.node_id, []).append(route)
        return leaders

    def _send(self, routes: list[Route]) -> tuple[Connection, PendingResponse[R]]:
        with self._cluster.noticing_loss(routes[0].node_id):
            connection = self._cluster.connection_to(routes[0].address)
            request = self._call.build([(route, self._open[route.partition]) for route in routes])
            version = connection.versions.choose(type(request), floor=self._call.min_version)
            return connection, connection.send(request, self._call.response_type, version)

    def _take(self, answer: PartitionAnswer[B]) -> None:
        if answer.partition not in self._open:
            return
        if answer.code is ErrorCode.NONE:
            self.answered[answer.partition] = answer.value
            del self._open[answer.partition]
        else:
            self._refused(answer.partition, answer.code, answer.message or answer.code.name)

    def _refused(self, partition: TopicPartition, code: ErrorCode, reason: str) -> None:
        now_ms = self._cluster.clock.now_ms()
        if is_hopeless(code, self._retries.waited_ms(now_ms)):
            self._fail(partition, KafkaError(code, f"cannot {self._call.what} partition {partition}: {reason}"))
            return
        self._causes[partition] = reason
        self._cluster.tell(PartitionRefused(now_ms, partition, code))

    def _note(self, routes: list[Route], error: Exception) -> None:
        for route in routes:
            self._causes[route.partition] = str(error)

    def _fail(self, partition: TopicPartition, error: QuorateError) -> None:
        self.failed[partition] = error
        del self._open[partition]

    def _give_up(self, now_ms: int) -> None:
        for partition in list(self._open):
            route = self._tried.get(partition)
            error = PartitionUnavailable(
                partition,
                route.node_id if route else None,
                route.address if route else None,
                self._causes.get(partition, "the answer left it out"),
                self._retries.waited_ms(now_ms),
            )
            self._fail(partition, error)
