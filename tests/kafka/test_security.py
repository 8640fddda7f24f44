"""Every security protocol and mechanism, and what a mistake in each of them says."""

import json
import time
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from quorate.client.admin.topics import NewTopic
from quorate.client.errors import AuthenticationFailed, NoBrokerAnswered
from quorate.client.security_config import SaslMechanism, SecurityConfig
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import TopicName
from quorate.security.listeners import SecurityProtocol
from tests.kafka.conftest import OpenClient
from tests.kafka.secured_kafka import MECHANISMS, PASSWORD, USERNAME, SecuredKafka
from tests.kafka.writing import records_of, values, values_of, write
from tests.peers.kafka_tools import ToolShell
from tests.unit.client.token_provider import providing

SHORT = {"retry_timeout_ms": 1000, "request_timeout_ms": 3000, "connect_timeout_ms": 3000}


@pytest.fixture(scope="module", autouse=True)
def _scram_credentials(kafka: SecuredKafka, tool_shell: ToolShell) -> None:
    kafka.add_scram_credentials(tool_shell)


def round_trip(
    kafka: SecuredKafka, open_client: OpenClient, name: str, listener: str, security: SecurityConfig
) -> None:
    client = open_client(kafka.listener(listener), security=security)
    client.topics.create([NewTopic(name=TopicName(name), partitions=3)])
    content = values(300, size_bytes=1000)
    for partition in range(3):
        write(kafka.bootstrap, name, partition, content)
    for partition in range(3):
        records = records_of(client.fetch_range(name, partition, 0, 300, max_bytes=100_000))
        assert values_of(records) == content
    ports = {broker.address.port for broker in client.cluster.describe().brokers.values()}
    assert ports == {int(address.rpartition(":")[2]) for address in kafka.listener(listener)}


def test_tls(kafka: SecuredKafka, open_client: OpenClient, name: str) -> None:
    security = SecurityConfig(protocol=SecurityProtocol.SSL, ca_location=str(kafka.certificates.ca))
    round_trip(kafka, open_client, name, "SSL", security)


def test_mutual_tls(kafka: SecuredKafka, open_client: OpenClient, name: str) -> None:
    security = SecurityConfig(
        protocol=SecurityProtocol.SSL,
        ca_location=str(kafka.certificates.ca),
        certificate_location=str(kafka.certificates.client),
        key_location=str(kafka.certificates.client_key),
    )
    round_trip(kafka, open_client, name, "MTLS", security)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_sasl(kafka: SecuredKafka, open_client: OpenClient, name: str, protocol: str, mechanism: str) -> None:
    security = SecurityConfig(
        protocol=SecurityProtocol(protocol),
        sasl_mechanism=SaslMechanism(mechanism),
        username=USERNAME,
        password=PASSWORD,
        ca_location=str(kafka.certificates.ca) if protocol == "SASL_SSL" else None,
    )
    round_trip(kafka, open_client, name, protocol, security)


def unsigned_token(lifetime_s: int) -> str:
    def part(content: dict[str, object]) -> str:
        return urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': USERNAME, 'iat': now - 60, 'exp': now + lifetime_s})}."


def bearer(**oauth: str) -> SecurityConfig:
    return SecurityConfig(
        protocol=SecurityProtocol.SASL_PLAINTEXT,
        sasl_mechanism=SaslMechanism.OAUTHBEARER,
        **oauth,  # type: ignore[arg-type]
    )


def test_a_token_of_an_identity_provider(kafka: SecuredKafka, open_client: OpenClient, name: str) -> None:
    with providing() as provider:
        provider.answer = {"access_token": unsigned_token(300), "expires_in": 300}
        security = bearer(oauth_token_endpoint=provider.url, oauth_client_id="me", oauth_client_secret="secret")
        round_trip(kafka, open_client, name, "SASL_PLAINTEXT", security)
        assert len(provider.asked) == 1, "three brokers, one token"


def test_an_expired_token_is_told_at_once(kafka: SecuredKafka, open_client: OpenClient, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(unsigned_token(-30))
    error = failure(open_client, kafka.listener("SASL_PLAINTEXT"), bearer(oauth_token_location=str(token)))
    assert isinstance(error, AuthenticationFailed)
    assert "the broker refuses the access token" in str(error)
    assert token.read_text() not in str(error)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_logins_are_made_anew_before_the_broker_ends_them(
    kafka: SecuredKafka, open_client: OpenClient, mechanism: str
) -> None:
    security = SecurityConfig(
        protocol=SecurityProtocol.SASL_PLAINTEXT,
        sasl_mechanism=SaslMechanism(mechanism),
        username=USERNAME,
        password=PASSWORD,
    )
    client = open_client(kafka.listener("RELOGIN"), security=security, retry_timeout_ms=1)
    until = time.monotonic() + 5
    while time.monotonic() < until:
        assert client.cluster.describe().brokers
        time.sleep(0.05)


def failure(open_client: OpenClient, servers: tuple[str, ...], security: SecurityConfig) -> QuorateError:
    client = open_client(servers, security=security, **SHORT)
    with pytest.raises(QuorateError) as caught:
        client.cluster.metadata([])
    assert any(server in str(caught.value) for server in servers)
    return caught.value


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told_at_once(kafka: SecuredKafka, open_client: OpenClient, mechanism: str) -> None:
    security = SecurityConfig(
        protocol=SecurityProtocol.SASL_PLAINTEXT,
        sasl_mechanism=SaslMechanism(mechanism),
        username=USERNAME,
        password="wrong",
    )
    error = failure(open_client, kafka.listener("SASL_PLAINTEXT"), security)
    assert isinstance(error, AuthenticationFailed)
    assert "wrong" not in str(error)


def test_a_broker_of_another_authority_is_refused(kafka: SecuredKafka, open_client: OpenClient) -> None:
    security = SecurityConfig(protocol=SecurityProtocol.SSL, ca_location=str(kafka.certificates.other_ca))
    error = failure(open_client, kafka.listener("SSL"), security)
    assert isinstance(error, AuthenticationFailed)
    assert "certificate" in str(error)


def test_a_broker_whose_certificate_names_another_host_is_refused(kafka: SecuredKafka, open_client: OpenClient) -> None:
    by_name = tuple(address.replace("127.0.0.1", "localhost") for address in kafka.listener("SSL"))
    checked = SecurityConfig(protocol=SecurityProtocol.SSL, ca_location=str(kafka.certificates.ca))
    assert isinstance(failure(open_client, by_name, checked), AuthenticationFailed)
    unchecked = SecurityConfig(
        protocol=SecurityProtocol.SSL, ca_location=str(kafka.certificates.ca), verify_hostname=False
    )
    assert open_client(by_name, security=unchecked).cluster.metadata([]).brokers


def test_a_missing_client_certificate_is_refused(kafka: SecuredKafka, open_client: OpenClient) -> None:
    security = SecurityConfig(protocol=SecurityProtocol.SSL, ca_location=str(kafka.certificates.ca))
    error = failure(open_client, kafka.listener("MTLS"), security)
    assert isinstance(error, AuthenticationFailed | NoBrokerAnswered)


def test_plain_text_to_a_tls_listener_is_one_clear_error(kafka: SecuredKafka, open_client: OpenClient) -> None:
    assert isinstance(failure(open_client, kafka.listener("SSL"), SecurityConfig()), NoBrokerAnswered)


def test_tls_to_a_plain_listener_is_one_clear_error(kafka: SecuredKafka, open_client: OpenClient) -> None:
    security = SecurityConfig(protocol=SecurityProtocol.SSL, ca_location=str(kafka.certificates.ca))
    failure(open_client, tuple(kafka.bootstrap.split(",")), security)


def test_no_credentials_to_a_sasl_listener_is_one_clear_error(kafka: SecuredKafka, open_client: OpenClient) -> None:
    assert isinstance(failure(open_client, kafka.listener("SASL_PLAINTEXT"), SecurityConfig()), NoBrokerAnswered)
