"""The configs of security: known with and without a listener, checked, and secrets among them."""

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId
from quorate.metadata.core.broker_configs import BROKER_CONFIGS, find_broker_definition
from quorate.metadata.core.commands import AlterBrokerConfigs, ConfigChange, ConfigOperation
from quorate.metadata.core.effective_configs import broker_value
from quorate.metadata.core.security_configs import (
    SECURITY_CONFIGS,
    STANDARD_AUTHORIZER,
    find_security_definition,
    is_secret,
)
from tests.unit.metadata.core.cluster import Cluster


@pytest.mark.parametrize(
    ("name", "known_as"),
    [
        ("super.users", "super.users"),
        ("ssl.client.auth", "ssl.client.auth"),
        ("listener.name.external.ssl.client.auth", "ssl.client.auth"),
        ("listener.name.external.plain.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.external.scram-sha-256.connections.max.reauth.ms", "connections.max.reauth.ms"),
        ("listener.name.external.super.users", None),
        ("listener.name.external.plain.ssl.client.auth", None),
        ("listener.name.external", None),
        ("log.dirs", None),
    ],
)
def test_a_config_is_known_by_what_comes_after_its_listener(name: str, known_as: str | None) -> None:
    definition = find_security_definition(name)

    assert (None if definition is None else definition.name) == known_as


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ssl.key.password", True),
        ("listener.name.a.ssl.keystore.key", True),
        ("listener.name.a.plain.sasl.jaas.config", True),
        ("delegation.token.secret.key", True),
        ("ssl.keystore.location", False),
        ("ssl.keystore.certificate.chain", False),
        ("delegation.token.max.lifetime.ms", False),
        ("my.plugin.password", True),
        ("listener.name.a.unknown.secret", True),
        ("retention.ms", False),
    ],
)
def test_secrets_are_shown_to_nobody(name: str, expected: bool) -> None:
    assert is_secret(name) is expected


def test_every_default_is_valid() -> None:
    for definition in SECURITY_CONFIGS:
        definition.parse(definition.default)
        assert definition == BROKER_CONFIGS[definition.name]
    assert len({definition.name for definition in SECURITY_CONFIGS}) == len(SECURITY_CONFIGS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorizer.class.name", "com.example.Own"),
        ("super.users", "alice"),
        ("ssl.client.auth", "always"),
        ("ssl.enabled.protocols", "TLSv1.1"),
        ("ssl.keystore.type", "JKS"),
        ("ssl.principal.mapping.rules", "RULE:x"),
        ("sasl.server.max.receive.size", "-1"),
        ("connections.max.reauth.ms", "soon"),
    ],
)
def test_a_value_that_means_nothing_is_refused(name: str, value: str) -> None:
    definition = find_security_definition(name)
    assert definition is not None
    with pytest.raises(KafkaError):
        definition.parse(value)


def test_the_authorizer_has_apache_kafkas_name() -> None:
    definition = find_security_definition("authorizer.class.name")
    assert definition is not None
    assert definition.parse(STANDARD_AUTHORIZER) == STANDARD_AUTHORIZER


def test_a_broken_secret_is_not_in_its_error() -> None:
    definition = find_security_definition("listener.name.a.plain.sasl.jaas.config")
    assert definition is not None

    with pytest.raises(KafkaError) as refusal:
        definition.parse('PlainLoginModule required password="hunter2" hunter2="a" hunter2="b"; hunter2')

    assert "sasl.jaas.config" in str(refusal.value)
    assert "hunter2" not in str(refusal.value)


def test_a_secret_cannot_be_given_to_the_metadata() -> None:
    cluster = Cluster(nodes=(7,))
    changes = (ConfigChange(key="listener.name.a.ssl.key.password", operation=ConfigOperation.SET, value="hunter2"),)

    refusal = cluster.refusal(AlterBrokerConfigs(node_id=None, changes=changes))

    assert refusal is not None
    assert refusal.code is ErrorCode.INVALID_REQUEST
    assert "hunter2" not in str(refusal)
    assert all(definition.read_only for definition in SECURITY_CONFIGS if definition.is_sensitive)


def test_a_config_of_one_listener_can_be_changed_and_taken_back() -> None:
    cluster = Cluster(nodes=(7,))
    name = "listener.name.outside.ssl.keystore.location"

    cluster.do(
        AlterBrokerConfigs(
            node_id=NodeId(7), changes=(ConfigChange(key=name, operation=ConfigOperation.SET, value="/new.pem"),)
        )
    )

    assert broker_value(cluster.image, cluster.view, name) == "/new.pem"
    cluster.do(
        AlterBrokerConfigs(
            node_id=NodeId(7), changes=(ConfigChange(key=name, operation=ConfigOperation.DELETE),), replace_all=True
        )
    )
    assert broker_value(cluster.image, cluster.view, name) == ""


def test_a_config_of_a_listener_that_is_none_is_refused() -> None:
    with pytest.raises(KafkaError, match="Unknown configuration"):
        find_broker_definition("listener.name.outside.super.users")
