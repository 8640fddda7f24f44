"""A cluster of fake brokers, a clock that the test moves, and clients of both."""

from collections.abc import Callable, Iterator
from random import Random
from uuid import UUID

import pytest

from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from tests.unit.client.clock import FakeClock
from tests.unit.client.fake_broker import FakeCluster
from tests.unit.client.fake_fetches import TOPIC

TOPIC_ID = UUID(int=7)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(7, 100, 4001) as running:
        running.leaders = {TOPIC: {0: (100, 3), 1: (4001, 3)}}
        running.topic_ids = {TOPIC: TOPIC_ID}
        yield running


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


OpenClient = Callable[..., KafkaClient]


@pytest.fixture
def open_client(cluster: FakeCluster, clock: FakeClock) -> Iterator[OpenClient]:
    opened: list[KafkaClient] = []

    def open_one(of: FakeCluster = cluster, **settings: object) -> KafkaClient:
        config = ClientConfig(bootstrap_servers=of.bootstrap, **settings)  # type: ignore[arg-type]
        client = KafkaClient(config, clock=clock, random=Random(1))
        opened.append(client)
        return client

    yield open_one
    for client in opened:
        client.close()


@pytest.fixture
def client(open_client: OpenClient) -> KafkaClient:
    return open_client()
