"""Waiting for the first of several answers."""

from collections.abc import Iterator

import pytest

from quorate.client.config import ClientConfig
from quorate.client.connections.connection import Connection, PendingResponse, ReceiveBuffers, first_ready
from quorate.client.connections.pool import Connector
from quorate.client.errors import RequestTimedOut
from quorate.client.retries import SystemMonotonicClock
from quorate.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.unit.client.fake_broker import SILENCE, FakeCluster

Flight = tuple[Connection, PendingResponse[ListGroupsResponse]]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(7, 100) as running:
        running.handle(ListGroupsRequest, lambda node_id, request, header: SILENCE)
        yield running


@pytest.fixture
def flights(cluster: FakeCluster) -> list[Flight]:
    connector = Connector(ClientConfig(bootstrap_servers=cluster.bootstrap), ReceiveBuffers(), SystemMonotonicClock())
    connections = [connector.open(broker.address) for broker in cluster.brokers.values()]
    cluster.brokers[100].handlers[ListGroupsRequest] = lambda request, header: ListGroupsResponse()
    return [(one, one.send(ListGroupsRequest(), ListGroupsResponse, 4)) for one in connections]


def test_the_one_that_answers_is_taken(flights: list[Flight]) -> None:
    ready = first_ready(flights, SystemMonotonicClock(), timeout_ms=30_000)
    assert ready == 1
    connection, pending = flights[ready]
    assert connection.wait(pending) == ListGroupsResponse()


def test_one_that_was_closed_is_taken(flights: list[Flight]) -> None:
    flights[0][0].close()
    assert first_ready(flights, SystemMonotonicClock(), timeout_ms=30_000) == 0


def test_a_single_one_needs_no_choice(flights: list[Flight]) -> None:
    assert first_ready(flights[:1], SystemMonotonicClock(), timeout_ms=30_000) == 0


def test_when_none_answers_the_time_has_been_waited_already(cluster: FakeCluster, flights: list[Flight]) -> None:
    silent, pending = flights[0]
    both = [(silent, pending), (silent, silent.send(ListGroupsRequest(), ListGroupsResponse, 4))]
    assert first_ready(both, SystemMonotonicClock(), timeout_ms=30) is None
    with pytest.raises(RequestTimedOut):
        silent.wait(pending, has_waited=True)
