"""The node under test, the clients, and names that no other test uses."""

import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol

import pytest

from tests.compat.clients.aiokafka_client import AiokafkaClient
from tests.compat.clients.client import Client
from tests.compat.clients.confluent import ConfluentClient
from tests.compat.clients.kafka_python import KafkaPythonClient
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.jars import PeersUnavailableError
from tests.peers.quorate_node import QuorateNode

CLIENTS: list[type[Client]] = [ConfluentClient, KafkaPythonClient, AiokafkaClient]

# A group's first member is not made to wait for more to come.
QUORATE_CONFIGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 4}
# A killed broker is let in again only after its old session ends: short, for the tests that restart it.
APACHE_KAFKA_SETTINGS = {
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "200",
    # It lives for the whole run, and tests write records of long ago: they stay for an hour.
    "log.retention.check.interval.ms": "3600000",
}

_numbers = itertools.count(1)


class NodeUnderTest(Protocol):
    """A Quorate node, or Apache Kafka's where the tests themselves are tested."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    def kill(self) -> None: ...
    def stop(self) -> object: ...
    def restart(self) -> None: ...


def _scope(fixture_name: str, config: pytest.Config) -> Literal["session", "module"]:
    """A fresh Quorate node for every module; Apache Kafka takes too long to start for that."""
    return "session" if config.getoption("--target") == "apache-kafka" else "module"


@pytest.fixture(scope=_scope)
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeUnderTest]:
    with running_node(request.config, tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture
def own_node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NodeUnderTest]:
    """A node that the test may kill, stop and restart. Parametrise it to give it broker configs of its own."""
    with running_node(request.config, tmp_path, getattr(request, "param", {})) as running:
        yield running


@pytest.fixture(scope=_scope)
def bootstrap(node: NodeUnderTest) -> str:
    return node.bootstrap


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest, bootstrap: str) -> Client:
    """Each of the Python clients in turn."""
    built: Client = request.param(bootstrap)
    return built


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own; the topic is not created."""
    return unique_name(request.node.name)


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A group name of the test's own."""
    return unique_name(f"group-of-{request.node.name}")


def unique_name(stem: str) -> str:
    return f"{re.sub('[^A-Za-z0-9._-]', '-', stem)[:80]}-{next(_numbers)}"


@contextmanager
def running_node(
    config: pytest.Config, folder: Path, configs: Mapping[str, int] | None = None
) -> Iterator[NodeUnderTest]:
    own_configs = dict(configs or {})
    if config.getoption("--target") == "quorate":
        with QuorateNode.start(folder, node_id=7, configs=QUORATE_CONFIGS | own_configs) as quorate:
            yield quorate
        return
    try:
        overrides = APACHE_KAFKA_SETTINGS | {name: str(value) for name, value in own_configs.items()}
        cluster = ApacheKafka.start(node_ids=(7,), overrides=overrides)
    except PeersUnavailableError as error:
        pytest.skip(str(error))
    with cluster:
        yield cluster.nodes[7]
