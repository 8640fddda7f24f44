"""Router, connections and retries put together: the shell that every call of the client goes through.

The router decides, this module carries out: it asks for metadata when the router says that it is due, tells the router
what answers and lost connections say, and logs what changed. There is no background thread: a due refresh is done by
the thread that comes by first, and the others go on with what is known.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from random import Random
from types import TracebackType
from typing import TypeVar

from quorate.client.cluster_metadata import ClusterMetadata, LiveBroker, read_metadata
from quorate.client.config import ClientConfig
from quorate.client.connections.connection import Connection, ReceiveBuffers
from quorate.client.connections.pool import Connections, Connector
from quorate.client.errors import AuthenticationFailed, Disconnected, NoBrokerAnswered, error_code
from quorate.client.retries import Backoff, MonotonicClock, Retries, SystemMonotonicClock, is_hopeless
from quorate.client.routing import (
    AddressForgotten,
    BrokerLost,
    LeaderFollowed,
    MetadataArrived,
    MetadataFailed,
    PartitionLeaderRouter,
    PictureOutdated,
    Route,
    RoutingEvent,
    TopicsWanted,
    Unroutable,
)
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.kernel.ids import NodeId, TopicName, TopicPartition
from quorate.protocol.errors import ProtocolError
from quorate.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quorate.protocol.schema import Request, Response

R = TypeVar("R", bound=Response)
T = TypeVar("T")

_log = logging.getLogger(__name__)
_LOSSES = (Disconnected, ProtocolError)
#: Before this version, asking for a topic's metadata could create it.
_NO_AUTO_CREATION_VERSION = 4
#: The first version in which no topics, rather than an empty list, means all of them.
_NULL_TOPICS_VERSION = 1


class Cluster:
    def __init__(
        self, config: ClientConfig, *, clock: MonotonicClock | None = None, random: Random | None = None
    ) -> None:
        self.config = config
        self.clock: MonotonicClock = clock or SystemMonotonicClock()
        self._random = random or Random()
        self._backoff = Backoff(initial_ms=config.retry_backoff_ms, max_ms=config.retry_backoff_max_ms)
        self._connections = Connections(
            Connector(config, ReceiveBuffers(), self.clock).open,
            per_broker=config.connections_per_broker,
            clock=self.clock,
        )
        # The router is touched only with this lock; it is never held while anything is waited for.
        self._routing = threading.Lock()
        self._router = PartitionLeaderRouter(
            refresh_interval_ms=config.metadata_refresh_interval_ms,
            refresh_backoff=self._backoff,
            random=self._random,
        )
        self._refreshing = threading.Lock()

    @property
    def leaders_followed(self) -> int:
        return self._router.leaders_followed

    def close(self) -> None:
        self._connections.close()

    def route(self, partition: TopicPartition) -> Route | Unroutable:
        with self._routing:
            return self._router.route(partition)

    def read_route(self, partition: TopicPartition) -> Route | Unroutable:
        with self._routing:
            return self._router.read_route(partition, self.clock.now_ms())

    def brokers(self) -> dict[NodeId, LiveBroker]:
        """The live brokers, asked for if none are known yet."""
        if not self._router.brokers:
            self.retry("the list of brokers", lambda: self.metadata([]))
        with self._routing:
            return dict(self._router.brokers)

    def want(self, topics: Iterable[TopicName]) -> None:
        """Know these topics from now on; asks the cluster where that is due."""
        self.tell(TopicsWanted(self.clock.now_ms(), frozenset(topics)))
        self.refresh_if_due()

    def tell(self, event: RoutingEvent) -> None:
        """Hand the router an event and carry out what it decides."""
        with self._routing:
            effects = self._router.step(event)
        for effect in effects:
            match effect:
                case LeaderFollowed(partition, previous, leader, leader_epoch):
                    _log.info(
                        "leader followed partition=%s previous=%s leader=%s epoch=%s",
                        partition,
                        previous,
                        leader,
                        leader_epoch,
                    )
                case AddressForgotten(address):
                    self._connections.forget(address)

    def refresh_if_due(self) -> None:
        """A failure is logged and tried again when the router says so; only refused credentials are raised."""
        if not self._router.refresh_is_due(self.clock.now_ms()):
            return
        # Who finds another thread at it goes on with what is known; only who knows nothing has to wait.
        if not self._refreshing.acquire(blocking=not self._router.brokers):
            return
        try:
            if self._router.refresh_is_due(self.clock.now_ms()):
                self._refresh()
        finally:
            self._refreshing.release()

    def _refresh(self) -> None:
        try:
            self.metadata(self._router.wanted_topics)
        except QuorateError as error:
            self.tell(MetadataFailed(self.clock.now_ms()))
            if isinstance(error, AuthenticationFailed):
                raise
            _log.warning("metadata refresh failed, will be tried again: %s", error)

    def metadata(self, topics: Iterable[TopicName] | None) -> ClusterMetadata:
        """Ask once, of the first broker that answers; None asks for all topics. The router learns from it."""
        names = None if topics is None else sorted(topics)

        def ask(connection: Connection) -> MetadataResponse:
            version = connection.versions.choose(MetadataRequest)
            answer = connection.ask(_metadata_request(names, version), MetadataResponse, version)
            if answer.error_code != ErrorCode.NONE:
                raise KafkaError(error_code(answer.error_code), f"{connection.address} refuses Metadata")
            return answer

        found = read_metadata(self.first_answer("Metadata", ask))
        self.tell(MetadataArrived(self.clock.now_ms(), found))
        return found

    def connection_to(self, address: Address) -> Connection:
        return self._connections.to(address)

    def ask_any(self, request: Request, response_type: type[R], *, ceiling: int | None = None) -> R:
        """The answer of any broker."""

        def ask(connection: Connection) -> R:
            version = connection.versions.choose(type(request), ceiling=ceiling)
            return connection.ask(request, response_type, version)

        return self.first_answer(type(request).__name__, ask)

    def ask_node(self, node: LiveBroker, request: Request, response_type: type[R], *, ceiling: int | None = None) -> R:
        """The answer of this very broker."""
        return self.ask_node_in_version(node, type(request), response_type, lambda _: request, ceiling=ceiling)

    def ask_node_in_version(
        self,
        node: LiveBroker,
        request_type: type[Request],
        response_type: type[R],
        build: Callable[[int], Request],
        *,
        ceiling: int | None = None,
    ) -> R:
        """As ``ask_node``, for requests that look different in each version."""
        with self.noticing_loss(node.node_id):
            connection = self.connection_to(node.address)
            version = connection.versions.choose(request_type, ceiling=ceiling)
            return connection.ask(build(version), response_type, version)

    def ask_controller(self, request: Request, response_type: type[R]) -> R:
        """The answer of the broker that the cluster names as its controller; it may forward."""
        return self.ask_controller_in_version(type(request), response_type, lambda _: request)

    def ask_controller_in_version(
        self, request_type: type[Request], response_type: type[R], build: Callable[[int], Request]
    ) -> R:
        def ask(connection: Connection) -> R:
            version = connection.versions.choose(request_type)
            return connection.ask(build(version), response_type, version)

        brokers = self.brokers()
        controller_id = self._router.controller_id
        if controller_id is None or controller_id not in brokers:
            return self.first_answer(request_type.__name__, ask)
        with self.noticing_loss(controller_id):
            return ask(self.connection_to(brokers[controller_id].address))

    def noticing_loss(self, node_id: NodeId) -> "_NoticingLoss":
        """Tell the router when the connection to the broker fails inside the block."""
        return _NoticingLoss(self, node_id)

    def new_retries(self, timeout_ms: int | None = None) -> Retries:
        timeout_ms = self.config.retry_timeout_ms if timeout_ms is None else timeout_ms
        return Retries(self._backoff, timeout_ms, self._random, self.clock.now_ms())

    def retry(self, what: str, attempt: Callable[[], T]) -> T:
        """Try until it succeeds or the deadline passes. What cannot get better is raised at once."""
        retries = self.new_retries()
        while True:
            try:
                return attempt()
            except (Disconnected, NoBrokerAnswered, ProtocolError, KafkaError) as error:
                now_ms = self.clock.now_ms()
                if isinstance(error, KafkaError) and is_hopeless(error.code, retries.waited_ms(now_ms)):
                    raise
                if not retries.failed(now_ms):
                    raise
                if isinstance(error, KafkaError):
                    self.tell(PictureOutdated(now_ms))
                _log.debug("%s failed, will be tried again: %s", what, error)
            self.clock.sleep_ms(retries.not_before_ms - self.clock.now_ms())
            self.refresh_if_due()

    def first_answer(self, what: str, ask: Callable[[Connection], T]) -> T:
        """Ask one broker after the other until one answers."""
        causes: dict[Address, Exception] = {}
        for address in self._addresses():
            try:
                return ask(self.connection_to(address))
            except (Disconnected, AuthenticationFailed, ProtocolError) as error:
                causes[address] = error
        for cause in causes.values():
            if isinstance(cause, AuthenticationFailed):
                raise cause
        raise NoBrokerAnswered(what, causes)

    def _addresses(self) -> list[Address]:
        """Brokers with an open connection first, then the other known ones, then the bootstrap servers."""
        connected = self._connections.open_addresses()
        with self._routing:
            known = [broker.address for broker in self._router.brokers.values()]
        bootstrap = self.config.bootstrap_addresses()
        self._random.shuffle(known)
        self._random.shuffle(bootstrap)
        ordered = dict.fromkeys([*known, *bootstrap])
        return sorted(ordered, key=lambda address: address not in connected)


class _NoticingLoss:
    """What a generator would do in three times the time: each request is sent, and waited for, in such a block."""

    __slots__ = ("_cluster", "_node_id")

    def __init__(self, cluster: Cluster, node_id: NodeId) -> None:
        self._cluster = cluster
        self._node_id = node_id

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, _LOSSES):
            self._cluster.tell(BrokerLost(self._cluster.clock.now_ms(), self._node_id))


def _metadata_request(names: list[TopicName] | None, version: int) -> MetadataRequest:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    if version < _NULL_TOPICS_VERSION:
        topics = topics or []
    if version < _NO_AUTO_CREATION_VERSION:
        return MetadataRequest(topics=topics)
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)
