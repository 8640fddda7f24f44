"""A real Apache Kafka of three brokers for the whole run, a Quorate node, and clients of both."""

import itertools
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from tests.kafka.leadership import Leadership
from tests.kafka.secured_kafka import SecuredKafka
from tests.peers.quorate_node import QuorateNode

_numbers = itertools.count(1)

OpenClient = Callable[..., KafkaClient]


class Cluster(Protocol):
    @property
    def bootstrap(self) -> str: ...


@pytest.fixture(scope="session")
def kafka(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with SecuredKafka.launch(tmp_path_factory.mktemp("certificates")) as running:
        yield running


@pytest.fixture(scope="session")
def quorate_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    configs = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 4, "log.retention.ms": -1}
    with QuorateNode.start(tmp_path_factory.mktemp("node"), node_id=4001, configs=configs) as running:
        yield running


@pytest.fixture(params=["apache-kafka", "quorate"])
def any_cluster(request: pytest.FixtureRequest) -> Cluster:
    """The same test against both: what the client can do, it can do with any cluster."""
    fixture = "kafka" if request.param == "apache-kafka" else "quorate_node"
    cluster: Cluster = request.getfixturevalue(fixture)
    return cluster


@pytest.fixture
def open_client() -> Iterator[OpenClient]:
    """Opens clients and closes them after the test."""
    opened: list[KafkaClient] = []

    def open_one(bootstrap: str | tuple[str, ...], **settings: object) -> KafkaClient:
        servers = tuple(bootstrap.split(",")) if isinstance(bootstrap, str) else bootstrap
        client = KafkaClient(ClientConfig(bootstrap_servers=servers, **settings))  # type: ignore[arg-type]
        opened.append(client)
        return client

    yield open_one
    for client in opened:
        client.close()


@pytest.fixture
def client(kafka: SecuredKafka, open_client: OpenClient) -> KafkaClient:
    return open_client(kafka.bootstrap)


@pytest.fixture
def any_client(any_cluster: Cluster, open_client: OpenClient) -> KafkaClient:
    return open_client(any_cluster.bootstrap)


@pytest.fixture
def leadership(kafka: SecuredKafka) -> Iterator[Leadership]:
    leadership = Leadership(kafka.bootstrap)
    yield leadership
    leadership.close()


@pytest.fixture
def name() -> str:
    """A topic or group that no other test uses."""
    return f"client-{next(_numbers)}"
