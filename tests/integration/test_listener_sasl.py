"""Logins at a real node: every mechanism by stock clients, and what each mistake says."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaTimeoutError
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider

from tests.eventually import eventually
from tests.integration.test_listener_tls import client_context
from tests.peers.secured_node import MECHANISMS, PASSWORD, RENEWED_EVERY_MS, USERNAME, SecuredNode, access_token
from tests.proofs import AIOKAFKA, CONFLUENT, KAFKA_PYTHON
from tests.unit.security.tokens import OTHER_RSA_KEY, RSA_KEY

VALUES = [b"value %d" % number * 50 for number in range(100)]
PASSWORD_MECHANISMS = [mechanism for mechanism in MECHANISMS if mechanism != "OAUTHBEARER"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with SecuredNode(tmp_path_factory.mktemp("sasl")) as node:
        node.restart()
        node.add_scram_users()
        yield node


def librdkafka(
    node: SecuredNode, listener: str, mechanism: str, *, password: str = PASSWORD, token: str | None = None
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": node.address(listener),
        "security.protocol": "SASL_SSL" if listener in ("SASL_SSL", "STORED") else "SASL_PLAINTEXT",
        "ssl.ca.location": str(node.authority.certificate),
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        shown = access_token() if token is None else token
        return settings | {"oauth_cb": lambda _: (shown, time.time() + 3600)}
    return settings | {"sasl.username": USERNAME, "sasl.password": password}


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.proves(*CONFLUENT, "SASL: PLAIN, SCRAM-SHA-256 and -512, OAUTHBEARER")
def test_librdkafka_writes_and_reads(node: SecuredNode, listener: str, mechanism: str) -> None:
    topic = f"librdkafka-{listener}-{mechanism}"
    write_and_read(librdkafka(node, listener, mechanism), topic)


def write_and_read(settings: dict[str, Any], topic: str) -> None:
    producer = Producer(settings)
    producer.poll(0)  # Serves the callback that has the token.
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


class KafkaPythonToken(KafkaPythonTokenProvider):  # type: ignore[misc]
    def token(self) -> str:
        return access_token()


class AiokafkaToken(AbstractTokenProvider):  # type: ignore[misc]
    async def token(self) -> str:
        return access_token()


def kafka_python(node: SecuredNode, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    settings = {
        "bootstrap_servers": node.address("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_context": client_context(node),
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return settings | {"sasl_oauth_token_provider": KafkaPythonToken()}
    return settings | {"sasl_plain_username": USERNAME, "sasl_plain_password": password}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.proves(*KAFKA_PYTHON, "SASL: PLAIN, SCRAM-SHA-256 and -512, OAUTHBEARER")
def test_kafka_python_writes_and_reads(node: SecuredNode, mechanism: str) -> None:
    settings, topic = kafka_python(node, mechanism), f"kafka-python-{mechanism}"
    producer = KafkaProducer(**settings)
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings
    )
    read = [next(consumer).value for _ in VALUES]
    consumer.close()
    assert read == VALUES


def aiokafka(node: SecuredNode, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    settings = kafka_python(node, mechanism, password)
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = AiokafkaToken()
    return settings


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.proves(*AIOKAFKA, "SASL: PLAIN, SCRAM-SHA-256 and -512, OAUTHBEARER")
def test_aiokafka_writes_and_reads(node: SecuredNode, mechanism: str) -> None:
    settings, topic = aiokafka(node, mechanism), f"aiokafka-{mechanism}"

    async def scenario() -> list[bytes]:
        async with AIOKafkaProducer(**settings) as producer:
            for value in VALUES:
                await producer.send(topic, value)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in VALUES]

    assert asyncio.run(scenario()) == VALUES


def test_plain_checks_the_passwords_of_scram_users_where_it_has_none_of_its_own(node: SecuredNode) -> None:
    write_and_read(librdkafka(node, "STORED", "PLAIN"), "stored")
    assert "Authentication failed" in first_error(librdkafka(node, "STORED", "PLAIN", password="wrong"))


def first_error(settings: dict[str, Any]) -> str:
    """What librdkafka tells its user of the login."""
    errors: list[KafkaError] = []
    producer = Producer({**settings, "error_cb": errors.append, "log_level": 0})

    def told() -> str | None:
        producer.poll(0.1)
        return next((error.str() for error in errors if error.code() == KafkaError._AUTHENTICATION), None)

    return eventually(told, "an error of the login")


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_a_wrong_password_is_told_so_and_no_more(node: SecuredNode, mechanism: str) -> None:
    for username in (USERNAME, "nobody"):
        settings = librdkafka(node, "SASL_SSL", mechanism, password="wrong") | {"sasl.username": username}
        error = first_error(settings)
        if mechanism == "PLAIN":
            assert "Authentication failed: Invalid username or password" in error
        else:
            assert f"due to invalid credentials with SASL mechanism {mechanism}" in error
    assert f"reason=\"{mechanism}: wrong name or password of 'nobody'\"" in node.log_text()
    assert "wrong password" not in node.log_text()


def test_the_other_clients_tell_of_a_wrong_password_too(node: SecuredNode, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KafkaTimeoutError):  # It tries again and again, and tells why in its log.
        KafkaProducer(**kafka_python(node, "SCRAM-SHA-512", "wrong"), bootstrap_timeout_ms=1000)
    assert "SaslAuthenticationFailedError: Authentication failed during authentication due to" in caplog.text
    assert "socket disconnected" not in caplog.text

    async def scenario() -> None:
        producer = AIOKafkaProducer(**aiokafka(node, "SCRAM-SHA-256", "wrong"))
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(KafkaConnectionError):
        asyncio.run(scenario())
    assert "SaslAuthenticationFailed: Authentication failed during authentication due to" in caplog.text


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (access_token(lifetime_s=-600), "it has expired"),
        (access_token(audience="others"), "its audience is another one"),
        (access_token(key=OTHER_RSA_KEY), "its signature is wrong"),
        ("no.token.atall", "its header is no JSON object"),
    ],
    ids=["expired", "for others", "forged", "no token"],
)
def test_a_token_that_is_not_good_here_is_refused(node: SecuredNode, token: str, reason: str) -> None:
    assert "invalid_token" in first_error(librdkafka(node, "SASL_SSL", "OAUTHBEARER", token=token))
    eventually(lambda: f"OAUTHBEARER: the token is refused: {reason}" in node.log_text(), "the log to tell it")


def test_a_new_key_of_the_issuer_is_fetched_when_a_token_needs_it(node: SecuredNode) -> None:
    node.use_issuer_key(OTHER_RSA_KEY, "second")
    try:
        token = access_token(key=OTHER_RSA_KEY, key_id="second")
        write_and_read(librdkafka(node, "SASL_SSL", "OAUTHBEARER", token=token), "second-key")
    finally:
        node.use_issuer_key(RSA_KEY, "first")


def test_a_mechanism_that_is_not_enabled_is_refused(node: SecuredNode) -> None:
    admin = AdminClient({"bootstrap.servers": node.address("PLAINTEXT")})
    assert admin.list_topics(timeout=30).brokers
    settings = librdkafka(node, "SASL_PLAINTEXT", "PLAIN")
    # A listener without SASL does not take a login for a request.
    errors = first_error({**settings, "bootstrap.servers": node.address("PLAINTEXT")})
    assert "state" in errors.lower()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.proves(*CONFLUENT, "logins renewed while records flow")
def test_logins_are_renewed_while_records_flow(node: SecuredNode, mechanism: str) -> None:
    """librdkafka renews a session by itself before it ends; a producer that did not would be cut off."""
    settings = librdkafka(node, "RENEWED", mechanism)
    errors: list[KafkaError] = []
    producer = Producer({**settings, "error_cb": errors.append})
    topic = f"renewed-{mechanism}"

    def write(value: bytes) -> None:
        producer.produce(topic, value)
        assert producer.flush(30) == 0

    written = write_for_several_logins(write)
    assert [error.str() for error in errors] == []
    assert values_of(node, topic, len(written)) == written


def write_for_several_logins(write: Callable[[bytes], None]) -> list[bytes]:
    until = time.monotonic() + 3 * RENEWED_EVERY_MS / 1000
    written: list[bytes] = []
    while time.monotonic() < until or len(written) < 20:
        value = b"value %d" % len(written)
        write(value)
        written.append(value)
    return written


def values_of(node: SecuredNode, topic: str, count: int) -> list[bytes | None]:
    """All values up to the end of the topic, of which there are at least so many."""
    plain = {"bootstrap.servers": node.address("PLAINTEXT"), "group.id": topic, "enable.partition.eof": True}
    consumer = Consumer({**plain, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes | None] = []

    def all_read() -> bool:
        for message in consumer.consume(500, 0.2):
            if message.error() is None:
                found.append(message.value())
            elif len(found) >= count:
                return True
        return False

    try:
        eventually(all_read, f"{count} records of {topic}")
    finally:
        consumer.close()
    return found


@pytest.mark.proves(*KAFKA_PYTHON, "logins renewed while records flow")
def test_kafka_python_renews_its_login_while_records_flow(node: SecuredNode, caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        "bootstrap_servers": node.address("RENEWED"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": USERNAME,
        "sasl_plain_password": PASSWORD,
    }
    producer = KafkaProducer(**settings)
    written = write_for_several_logins(lambda value: producer.send("renewed-kafka-python", value).get(30))
    producer.close()
    assert values_of(node, "renewed-kafka-python", len(written)) == written
    assert "disconnected" not in caplog.text.lower()


@pytest.mark.proves(*AIOKAFKA, "comes back by itself when a login ends, which it does not renew")
def test_aiokafka_which_renews_no_login_comes_back_by_itself(node: SecuredNode) -> None:
    async def scenario() -> list[bytes]:
        settings = {
            "bootstrap_servers": node.address("RENEWED"),
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": USERNAME,
            "sasl_plain_password": PASSWORD,
            "enable_idempotence": True,
        }
        written: list[bytes] = []
        until = time.monotonic() + 3 * RENEWED_EVERY_MS / 1000
        async with AIOKafkaProducer(**settings) as producer:
            while time.monotonic() < until or len(written) < 20:
                value = b"value %d" % len(written)
                await producer.send_and_wait("renewed-aiokafka", value)
                written.append(value)
        return written

    written = asyncio.run(scenario())
    assert values_of(node, "renewed-aiokafka", len(written)) == written
