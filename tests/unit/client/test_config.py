"""The config: what it accepts, and the sentence that each mistake gives."""

import pickle
from typing import Any

import pytest

from quorate.client.config import ClientConfig, parse_client_config
from quorate.client.security_config import SaslMechanism, SecurityConfig
from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError
from quorate.security.listeners import SecurityProtocol

SASL = {"protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "username": "u", "password": "p"}


def test_the_keys_of_a_file() -> None:
    config = parse_client_config(
        {
            "bootstrap_servers": ["broker-1:9092", "[::1]:9093"],
            "metadata_refresh_interval_ms": 5_000,
            "security": {**SASL, "ca_location": "ca.pem"},
        }
    )
    assert config.bootstrap_addresses() == [Address("broker-1", 9092), Address("::1", 9093)]
    assert config.metadata_refresh_interval_ms == 5_000
    assert config.security.sasl_mechanism is SaslMechanism.SCRAM_SHA_512
    assert config.security.verify_hostname


def test_servers_may_be_one_text() -> None:
    assert parse_client_config({"bootstrap_servers": "a:1, b:2"}).bootstrap_servers == ("a:1", "b:2")


def test_the_config_travels() -> None:
    config = parse_client_config({"bootstrap_servers": ["a:1"], "security": SASL})
    assert pickle.loads(pickle.dumps(config)) == config


def test_secrets_are_not_shown() -> None:
    secrets = {"password": "hunter2", "certificate_chain": "x", "private_key": "hunter2", "key_password": "hunter2"}
    config = parse_client_config({"bootstrap_servers": ["a:1"], "security": {**SASL, **secrets}})
    assert "hunter2" not in repr(config)
    assert "username='u'" in repr(config)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({}, "bootstrap_servers must name at least one host:port"),
        ({"bootstrap_servers": []}, "bootstrap_servers must name at least one host:port"),
        ({"bootstrap_servers": ["broker"]}, "'broker' is not an address of the form host:port"),
        ({"bootstrap_servers": ["a:1:2"]}, "'a:1:2' is not an address of the form host:port"),
        ({"bootstrap_server": ["a:1"]}, "unknown key 'bootstrap_server'; did you mean 'bootstrap_servers'?"),
        ({"request_timeout_ms": 0}, "request_timeout_ms must be more than 0, not 0"),
        ({"retry_backoff_ms": 9_999}, "retry_backoff_max_ms must not be less than retry_backoff_ms"),
        ({"security": {"protocol": "TLS"}}, "security: protocol: 'TLS' is not one of PLAINTEXT, SSL"),
        ({"security": {"protcol": "SSL"}}, "security: unknown key 'protcol'; did you mean 'protocol'?"),
        ({"security": {"protocol": "SASL_SSL"}}, "security: sasl_mechanism is needed with protocol SASL_SSL"),
        ({"security": {**SASL, "protocol": "SSL"}}, "security: sasl_mechanism means nothing with protocol SSL"),
        ({"security": {"ca_location": "x"}}, "security: ca_location means nothing with protocol PLAINTEXT"),
        ({"security": {"protocol": "SSL", "key_location": "x"}}, "key_location needs certificate_location"),
        ({"security": {"protocol": "SSL", "private_key": "x"}}, "security: private_key needs certificate_chain"),
        (
            {"security": {"protocol": "SSL", "ca_location": "x", "ca_certificates": "y"}},
            "security: ca_certificates and ca_location are both given: name one of them",
        ),
        ({"security": {"protocol": "SSL", "tls_versions": "TLSv1"}}, "'TLSv1' is not one of TLSv1.2, TLSv1.3"),
        (
            {"security": {**SASL, "sasl_mechanism": "PLAIN", "delegation_token": True}},
            "security: delegation_token means nothing with PLAIN: name one of the SCRAM mechanisms",
        ),
    ],
)
def test_a_mistake_is_one_clear_sentence(raw: dict[str, Any], sentence: str) -> None:
    servers: dict[str, Any] = {} if "bootstrap_server" in raw or raw == {} else {"bootstrap_servers": ["a:1"]}
    with pytest.raises(QuorateError) as caught:
        parse_client_config({**servers, **raw})
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_defaults_are_safe() -> None:
    config = ClientConfig(bootstrap_servers=("a:1",))
    assert config.metadata_refresh_interval_ms == 30_000
    assert config.security == SecurityConfig(protocol=SecurityProtocol.PLAINTEXT, verify_hostname=True)
