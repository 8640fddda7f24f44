"""Listeners in Kafka's settings: what they come to, and mistakes in one sentence."""

import pytest

from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError
from quorate.security.listeners import SecurityProtocol, parse_listeners

MANY = {
    "listeners": "INTERNAL://10.0.0.1:9092, EXTERNAL://0.0.0.0:9093,sasl_ssl://[::1]:9094,PLAINTEXT://localhost:0",
    "advertised.listeners": "EXTERNAL://kafka.example.com:443",
    "listener.security.protocol.map": "INTERNAL:SSL,external:sasl_ssl",
    "inter.broker.listener.name": "INTERNAL",
    "ssl.client.auth": "requested",
    "listener.name.internal.ssl.client.auth": "required",
    "listener.name.external.scram-sha-256.sasl.jaas.config": "x",
    "sasl.jaas.config": "y",
}


def test_each_listener_has_a_name_a_protocol_and_an_address() -> None:
    listeners = parse_listeners(MANY)

    assert [(each.name, each.protocol, str(each.address), str(each.advertised)) for each in listeners.all] == [
        ("INTERNAL", SecurityProtocol.SSL, "10.0.0.1:9092", "10.0.0.1:9092"),
        ("EXTERNAL", SecurityProtocol.SASL_SSL, "0.0.0.0:9093", "kafka.example.com:443"),
        ("SASL_SSL", SecurityProtocol.SASL_SSL, "[::1]:9094", "[::1]:9094"),
        ("PLAINTEXT", SecurityProtocol.PLAINTEXT, "localhost:0", "localhost:0"),
    ]
    assert listeners.between_nodes.name == "INTERNAL"
    assert listeners.find("external") is listeners.all[1]
    assert listeners.find("other") is None


def test_a_listeners_own_setting_comes_before_that_of_all() -> None:
    internal, external = parse_listeners(MANY).all[:2]

    assert internal.settings.get("ssl.client.auth") == "required"
    assert external.settings.get("ssl.client.auth") == "requested"
    assert internal.settings.get("ssl.key.password") is None
    assert external.settings.get_of_mechanism("SCRAM-SHA-256", "sasl.jaas.config") == "x"
    assert external.settings.get_of_mechanism("PLAIN", "sasl.jaas.config") == "y"
    assert internal.settings.name_of("ssl.client.auth") == "listener.name.internal.ssl.client.auth"
    assert external.settings.name_of("ssl.client.auth") == "ssl.client.auth"


def test_the_first_listener_is_for_nodes_where_none_is_named() -> None:
    listeners = parse_listeners({"listeners": "SSL://a:1,PLAINTEXT://a:2"})
    assert listeners.between_nodes.name == "SSL"

    by_protocol = {"listeners": "SSL://a:1,PLAINTEXT://a:2", "security.inter.broker.protocol": "PLAINTEXT"}
    assert parse_listeners(by_protocol).between_nodes.address == Address("a", 2)


def test_protocols() -> None:
    assert [each.uses_tls for each in SecurityProtocol] == [False, True, False, True]
    assert [each.uses_sasl for each in SecurityProtocol] == [False, False, True, True]


def test_settings_are_not_shown() -> None:
    listeners = parse_listeners({"listeners": "SSL://a:1", "ssl.key.password": "secret"})

    assert "secret" not in repr(listeners)
    assert repr(listeners.all[0]) == "Listener(SSL:SSL a:1, advertised a:1)"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "listeners names none"),
        ({"listeners": " , "}, "listeners names none"),
        ({"listeners": "a:9092"}, "not of the form NAME://host:port"),
        ({"listeners": "://a:9092"}, "not of the form NAME://host:port"),
        ({"listeners": "PLAINTEXT://a"}, "not an address of the form host:port"),
        ({"listeners": "PLAINTEXT://a:99999"}, "not an address of the form host:port"),
        ({"listeners": "SSL://a:1,ssl://a:2"}, "names SSL twice"),
        ({"listeners": "SSL://a:1,PLAINTEXT://a:1"}, "SSL and PLAINTEXT have the same address, a:1"),
        ({"listeners": "OWN://a:1"}, "OWN has no security protocol"),
        ({"listeners": "OWN://a:1", "listener.security.protocol.map": "OWN:TLS"}, "not of the form NAME:PROTOCOL"),
        ({"listeners": "OWN://a:1", "listener.security.protocol.map": "OWN"}, "not of the form NAME:PROTOCOL"),
        ({"listeners": "SSL://a:1", "listener.security.protocol.map": "X:SSL,x:SSL"}, "names X twice"),
        ({"listeners": "SSL://a:1", "advertised.listeners": "PLAINTEXT://a:1"}, "is not among listeners"),
        ({"listeners": "SSL://:1"}, "has no address that clients can connect to"),
        ({"listeners": "SSL://a:1", "advertised.listeners": "SSL://0.0.0.0:1"}, "no address that clients can connect"),
        ({"listeners": "SSL://a:1", "inter.broker.listener.name": "INTERNAL"}, "there is no listener 'INTERNAL'"),
        ({"listeners": "SSL://a:1", "security.inter.broker.protocol": "PLAINTEXT"}, "there is no listener 'PLAINTEXT'"),
        (
            {"listeners": "SSL://a:1", "inter.broker.listener.name": "SSL", "security.inter.broker.protocol": "SSL"},
            "not both",
        ),
        ({"listeners": "SSL://a:1", "listener.name.sasl.ssl.client.auth": "none"}, "is for a listener that is not"),
    ],
)
def test_a_mistake_is_one_sentence(settings: dict[str, str], message: str) -> None:
    with pytest.raises(QuorateError, match=message) as raised:
        parse_listeners(settings)

    assert "\n" not in str(raised.value)
