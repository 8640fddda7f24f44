"""TLS listeners of a real node: stock clients, what goes wrong in a handshake, and certificates that change."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kafka import KafkaConsumer, KafkaProducer

from tests.eventually import eventually
from tests.peers.secured_node import Authority, SecuredNode
from tests.proofs import AIOKAFKA, CONFLUENT, KAFKA_PYTHON

VALUES = [b"value %d" % number * 100 for number in range(300)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with SecuredNode(tmp_path_factory.mktemp("tls")) as node:
        node.restart()
        yield node


@pytest.fixture(scope="module")
def alice(node: SecuredNode) -> Path:
    return node.authority.issue("alice")


def librdkafka(node: SecuredNode, listener: str, certificate: Path | None = None) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": node.address(listener),
        "security.protocol": "SSL",
        "ssl.ca.location": str(node.authority.certificate),
    }
    if certificate is not None:
        settings |= {"ssl.certificate.location": str(certificate), "ssl.key.location": str(certificate)}
    return settings


def client_context(node: SecuredNode, certificate: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(node.authority.certificate))
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


@pytest.mark.parametrize("listener", ["SSL", "MTLS", "ASKING"])
@pytest.mark.proves(*CONFLUENT, "TLS with client certificates")
def test_librdkafka_writes_and_reads(node: SecuredNode, alice: Path, listener: str) -> None:
    settings = librdkafka(node, listener, alice if listener == "MTLS" else None)
    topic = f"librdkafka-{listener}"
    producer = Producer(settings)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        read = [consumer.poll(30) for _ in VALUES]
    finally:
        consumer.close()
    assert [message and message.value() for message in read] == VALUES


@pytest.mark.proves(*KAFKA_PYTHON, "TLS with client certificates")
def test_kafka_python_writes_and_reads(node: SecuredNode, alice: Path) -> None:
    settings = {
        "bootstrap_servers": node.address("MTLS"),
        "security_protocol": "SSL",
        "ssl_context": client_context(node, alice),
    }
    producer = KafkaProducer(**settings)
    for value in VALUES:
        producer.send("kafka-python", value)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(
        "kafka-python", group_id="kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings
    )
    read = [next(consumer).value for _ in VALUES]
    consumer.close()
    assert read == VALUES


@pytest.mark.proves(*AIOKAFKA, "TLS with client certificates")
def test_aiokafka_writes_and_reads(node: SecuredNode, alice: Path) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": node.address("MTLS"),
        "security_protocol": "SSL",
        "ssl_context": client_context(node, alice),
    }

    async def scenario() -> list[bytes]:
        async with AIOKafkaProducer(**settings) as producer:
            for value in VALUES:
                await producer.send("aiokafka", value)
        async with AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **settings) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in VALUES]

    assert asyncio.run(scenario()) == VALUES


def first_errors(settings: dict[str, Any]) -> str:
    """What librdkafka tells its user, once it has told something that is not only that nobody can be reached."""
    errors: list[KafkaError] = []
    producer = Producer({**settings, "error_cb": errors.append, "log_level": 0})

    def told() -> str | None:
        producer.poll(0.1)
        return next((error.str() for error in errors if error.code() != KafkaError._ALL_BROKERS_DOWN), None)

    return eventually(told, "an error of the client")


def test_who_shows_no_certificate_is_told_so(node: SecuredNode) -> None:
    assert "certificate required" in first_errors(librdkafka(node, "MTLS"))
    eventually(
        lambda: "listener=MTLS peer=127.0.0.1 reason='it shows no certificate'" in node.log_text(), "the log to tell it"
    )


def test_an_expired_certificate_is_told_so(node: SecuredNode) -> None:
    expired = node.authority.issue("expired", began_days_ago=10)
    assert "certificate expired" in first_errors(librdkafka(node, "MTLS", expired))
    reason = "reason='its certificate is not accepted: certificate has expired'"
    eventually(lambda: reason in node.log_text(), "the log to tell it")


def test_a_certificate_of_another_authority_is_refused(node: SecuredNode, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    mallory = other.issue("mallory")
    for listener in ("MTLS", "ASKING"):
        assert "unknown ca" in first_errors(librdkafka(node, listener, mallory))
    distrusting = librdkafka(node, "SSL") | {"ssl.ca.location": str(other.certificate)}
    assert "certificate verify failed" in first_errors(distrusting)
    eventually(lambda: "does not trust the certificate of this listener" in node.log_text(), "the log to tell it")


def test_who_does_not_speak_tls_is_disconnected_and_the_log_says_why(node: SecuredNode) -> None:
    with socket.create_connection(("127.0.0.1", node.ports["SSL"]), timeout=30) as client:
        client.sendall(b"\0\0\0\x15\0\x12\0\x03\0\0\0\1\0\x09librdkafka\0\0\0\0")
        assert client.recv(100) == b""
    settings: dict[str, Any] = {"bootstrap.servers": node.address("SSL"), "log_level": 0}
    with pytest.raises(Exception, match="_TRANSPORT"):
        AdminClient(settings).list_topics(timeout=5)
    eventually(
        lambda: "listener=SSL peer=127.0.0.1 reason='it does not speak TLS" in node.log_text(), "the log to tell it"
    )


def test_half_a_handshake_does_not_keep_others_waiting(node: SecuredNode) -> None:
    halves = [socket.create_connection(("127.0.0.1", node.ports["SSL"])) for _ in range(50)]
    try:
        for half in halves:
            half.sendall(b"\x16\x03\x01\x02\x00\x01")
        assert AdminClient(librdkafka(node, "SSL")).list_topics(timeout=30).brokers
    finally:
        for half in halves:
            half.close()


def certificate_of(node: SecuredNode, listener: str) -> str:
    """Serial number of what the listener shows."""
    with (
        socket.create_connection(("127.0.0.1", node.ports[listener]), timeout=30) as plain,
        client_context(node).wrap_socket(plain, server_hostname="127.0.0.1") as client,
    ):
        shown = client.getpeercert()
        assert shown is not None
        return str(shown["serialNumber"])


def test_a_new_certificate_is_used_without_a_restart_and_old_connections_stay(node: SecuredNode) -> None:
    admin = AdminClient(librdkafka(node, "SSL"))
    assert admin.list_topics(timeout=30).brokers
    before = certificate_of(node, "SSL")
    with (
        socket.create_connection(("127.0.0.1", node.ports["SSL"]), timeout=30) as plain,
        client_context(node).wrap_socket(plain, server_hostname="127.0.0.1") as old,
    ):
        node.authority.issue("node", "127.0.0.1")  # Into the same file.
        eventually(lambda: certificate_of(node, "SSL") != before, "the new certificate")
        old.sendall(b"\0\0\0\x0a\0\x12\0\x00\0\0\0\1\xff\xff")
        assert old.recv(4)
    # What cannot be used changes nothing.
    now = certificate_of(node, "SSL")
    node.key_store.write_text("no PEM at all")
    eventually(lambda: "tls of listener stays as it was listener=SSL" in node.log_text(), "the log to tell it")
    assert certificate_of(node, "SSL") == now
    node.authority.issue("node", "127.0.0.1")
    eventually(lambda: certificate_of(node, "SSL") != now, "the next certificate")


def test_a_listener_gets_other_certificates_by_its_configs(node: SecuredNode) -> None:
    admin = AdminClient({"bootstrap.servers": node.address("PLAINTEXT")})

    def alter(value: str | None) -> None:
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry("listener.name.ssl.ssl.keystore.location", value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, "7", incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)

    shown, others = certificate_of(node, "SSL"), certificate_of(node, "ASKING")
    alter(str(node.authority.issue("another", "127.0.0.1")))
    eventually(lambda: certificate_of(node, "SSL") != shown, "the other certificate")
    assert certificate_of(node, "ASKING") == others
    alter(None)
    eventually(lambda: certificate_of(node, "SSL") == shown, "the first certificate")
