"""Quotas by user, where users have shown who they are: logins, certificates, and those who did neither."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from quorate.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from tests.compat.clients.confluent import ConfluentClient
from tests.compat.conftest import unique_name
from tests.integration.wire_client import WireClient
from tests.peers.secured_node import PASSWORD, USERNAME, SecuredNode
from tests.proofs import CONFLUENT

pytestmark = pytest.mark.proves(*CONFLUENT, "quotas by user: SCRAM, PLAIN, certificates; default and client id")

#: A window's worth, of ten seconds, is less than one batch.
SLOW = 100.0
FAST = 1e9
BYTES: Final = 4_000
#: As Java writes the subject of the certificate that is issued for it.
CERTIFIED: Final = "CN=carol"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with SecuredNode(tmp_path_factory.mktemp("secured")) as running:
        running.restart()
        running.add_scram_users()
        yield running


class Quotas:
    def __init__(self, node: SecuredNode) -> None:
        self._node = node
        self._set: list[Mapping[str, str | None]] = []

    def set(self, rate: float, **entity: str | None) -> None:
        """``client_id`` stands for client-id."""
        self._change(entity, OpData(key="producer_byte_rate", value=rate))
        self._set.append(entity)

    def remove_all(self) -> None:
        for entity in self._set:
            self._change(entity, OpData(key="producer_byte_rate", remove=True))

    def _change(self, entity: Mapping[str, str | None], op: OpData) -> None:
        parts = [
            RequestEntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()
        ]
        request = AlterClientQuotasRequest(entries=[RequestEntryData(entity=parts, ops=[op])])
        with WireClient(self._node.address("PLAINTEXT")) as client:
            assert client.call(request, 1, AlterClientQuotasResponse).entries[0].error_code == 0


@pytest.fixture
def quotas(node: SecuredNode) -> Iterator[Quotas]:
    made = Quotas(node)
    yield made
    made.remove_all()


@pytest.fixture(scope="module")
def topic(node: SecuredNode) -> str:
    name = unique_name("of-users")
    ConfluentClient(node.address("PLAINTEXT")).create_topic(name)
    return name


class Writer:
    """Writes to the topic as somebody."""

    def __init__(self, node: SecuredNode, topic: str, folder: Path) -> None:
        self._node = node
        self._topic = topic
        self._folder = folder

    def login(self, mechanism: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self._node.address("SASL_SSL"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._node.authority.certificate),
            "sasl.mechanism": mechanism,
            "sasl.username": USERNAME,
            "sasl.password": PASSWORD,
        }

    def certificate(self) -> dict[str, str]:
        issued = str(self._node.authority.issue("carol"))
        return {
            "bootstrap.servers": self._node.address("MTLS"),
            "security.protocol": "SSL",
            "ssl.ca.location": str(self._node.authority.certificate),
            "ssl.certificate.location": issued,
            "ssl.key.location": issued,
        }

    def nobody(self) -> dict[str, str]:
        return {"bootstrap.servers": self._node.address("PLAINTEXT")}

    def is_held_back(self, who: Mapping[str, str], client_id: str = "app") -> bool:
        told_ms: list[float] = []
        settings = {**who, "client.id": client_id, "linger.ms": 0}
        producer = Producer({**settings, "throttle_cb": lambda event: told_ms.append(event.throttle_time)})
        producer.produce(self._topic, bytes(BYTES))
        assert producer.flush(30) == 0
        producer.poll(0.2)
        return any(told_ms)


@pytest.fixture
def writer(node: SecuredNode, topic: str, tmp_path: Path) -> Writer:
    return Writer(node, topic, tmp_path)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_a_user_is_held_to_its_quota_whatever_it_logs_in_with(writer: Writer, quotas: Quotas, mechanism: str) -> None:
    quotas.set(SLOW, user=USERNAME)
    assert writer.is_held_back(writer.login(mechanism))
    assert writer.is_held_back(writer.login(mechanism), client_id="another")
    assert not writer.is_held_back(writer.certificate())
    assert not writer.is_held_back(writer.nobody())


def test_the_user_of_a_certificate_is_its_subject(writer: Writer, quotas: Quotas) -> None:
    quotas.set(SLOW, user=CERTIFIED)
    assert writer.is_held_back(writer.certificate())
    assert not writer.is_held_back(writer.login("PLAIN"))


def test_the_default_of_users_is_for_those_without_a_quota_of_their_own(writer: Writer, quotas: Quotas) -> None:
    quotas.set(SLOW, user=None)
    quotas.set(FAST, user=USERNAME)
    assert not writer.is_held_back(writer.login("SCRAM-SHA-512"))
    assert writer.is_held_back(writer.certificate())
    assert writer.is_held_back(writer.nobody())


def test_a_user_comes_before_a_client_id_and_both_together_before_each(writer: Writer, quotas: Quotas) -> None:
    quotas.set(SLOW, client_id="app")
    assert writer.is_held_back(writer.login("PLAIN"))
    quotas.set(FAST, user=USERNAME)
    assert not writer.is_held_back(writer.login("PLAIN"))
    quotas.set(SLOW, user=USERNAME, client_id="app")
    assert writer.is_held_back(writer.login("PLAIN"))
    assert not writer.is_held_back(writer.login("PLAIN"), client_id="another")
    assert writer.is_held_back(writer.nobody())
