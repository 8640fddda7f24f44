"""SASL in a listener's settings."""

import pytest

from quorate.kernel.errors import QuorateError
from quorate.security.listeners import ListenerSettings
from quorate.security.sasl.settings import SaslSettings, parse_sasl_settings

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="x" password="y" user_alice="secret";'
OAUTH = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "file:/etc/jwks.json",
    "sasl.oauthbearer.expected.audience": "kafka, other",
    "sasl.oauthbearer.expected.issuer": "https://idp",
}


def parse(settings: dict[str, str]) -> SaslSettings:
    return parse_sasl_settings(ListenerSettings(settings, "EXTERNAL"))


def test_mechanisms_and_limits() -> None:
    settings = parse(
        {
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.external.sasl.enabled.mechanisms": "scram-sha-512, PLAIN,PLAIN",
            "connections.max.reauth.ms": "1000",
            "listener.name.external.plain.connections.max.reauth.ms": "0",
            "listener.name.external.plain.sasl.jaas.config": JAAS,
            "sasl.server.max.receive.size": "1024",
            "connection.failed.authentication.delay.ms": "5",
        }
    )

    assert settings.rules.mechanisms == ("SCRAM-SHA-512", "PLAIN")
    assert settings.rules.max_reauthentication_ms == {"SCRAM-SHA-512": 1000}
    assert settings.rules.max_receive_bytes == 1024
    assert settings.rules.failure_delay_ms == 5
    assert settings.passwords == {"alice": "secret"}
    assert settings.tokens is None
    assert "secret" not in repr(settings)


def test_plain_without_users_of_its_own_checks_the_clusters() -> None:
    settings = parse({"sasl.enabled.mechanisms": "PLAIN"})

    assert settings.passwords is None
    assert settings.rules.max_receive_bytes == 524_288
    assert settings.rules.failure_delay_ms == 100


def test_tokens() -> None:
    settings = parse(OAUTH | {"sasl.oauthbearer.sub.claim.name": "azp", "sasl.oauthbearer.clock.skew.seconds": "5"})

    assert settings.tokens is not None
    assert settings.tokens.key_set_url == "file:/etc/jwks.json"
    assert settings.tokens.rules.expected_audience == ("kafka", "other")
    assert settings.tokens.rules.expected_issuer == "https://idp"
    assert settings.tokens.rules.principal_claim == "azp"
    assert settings.tokens.rules.clock_skew_seconds == 5
    assert settings.tokens.refresh_ms == 3_600_000


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "names no mechanism"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "Kerberos"),
        ({"listener.name.external.sasl.enabled.mechanisms": "MD5"}, "listener.name.external.sasl.enabled.mechanisms: "),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": "secret"}, "not of the form"),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": 'a required p="secret";'}, "names no users"),
        ({"sasl.enabled.mechanisms": "PLAIN", "connections.max.reauth.ms": "-1"}, "is not a number from 0"),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.server.max.receive.size": "1e3"}, "is not a number from 0"),
        (OAUTH | {"sasl.oauthbearer.jwks.endpoint.url": ""}, "needs sasl.oauthbearer.jwks.endpoint.url"),
        (OAUTH | {"sasl.oauthbearer.jwks.endpoint.url": "ftp://x"}, "is not of https:"),
        (OAUTH | {"sasl.oauthbearer.expected.audience": " "}, "needs sasl.oauthbearer.expected.audience"),
        (OAUTH | {"sasl.oauthbearer.expected.issuer": ""}, "needs sasl.oauthbearer.expected.issuer"),
        (OAUTH | {"sasl.oauthbearer.clock.skew.seconds": "99999"}, "is not a number from 0 to 3600"),
    ],
)
def test_a_mistake_is_one_sentence_without_a_secret(settings: dict[str, str], message: str) -> None:
    with pytest.raises(QuorateError, match=message) as raised:
        parse(settings)

    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)
