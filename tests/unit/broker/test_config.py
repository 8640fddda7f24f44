"""The node's file: what it may say, and how a mistake in it is told."""

import pytest

from quorate.broker.config import parse_node_config
from quorate.broker.log_settings import LogFormat, LogLevel, LogSettings
from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError
from quorate.kernel.settings import Durability
from quorate.security.listeners import SecurityProtocol

MINIMAL = 'node_id = 7\ndata_dir = "/tmp/x"\nlisten = "127.0.0.1:9092"\n'


def test_a_minimal_file_gets_safe_defaults() -> None:
    config = parse_node_config(MINIMAL)
    assert config.node_id == 7
    assert config.listen == Address("127.0.0.1", 9092)
    assert config.durability is Durability.FSYNC
    assert config.broker_view().static_configs["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"


def test_broker_configs_go_by_their_kafka_names_and_any_toml_type() -> None:
    config = parse_node_config(
        MINIMAL + '[configs]\n"num.partitions" = 3\n"auto.create.topics.enable" = false\n"log.retention.ms" = "5"\n'
    )
    assert config.configs == {"num.partitions": "3", "auto.create.topics.enable": "false", "log.retention.ms": "5"}


def test_the_log_has_a_table_of_its_own() -> None:
    assert parse_node_config(MINIMAL).log == LogSettings(level=LogLevel.INFO, format=LogFormat.TEXT, file=None)

    text = '[log]\nlevel = "debug"\nformat = "json"\nfile = "/tmp/node.log"\nmax_bytes = 1_000_000\nkept_files = 0\n'
    assert parse_node_config(MINIMAL + text).log == LogSettings(
        level=LogLevel.DEBUG, format=LogFormat.JSON, file="/tmp/node.log", max_bytes=1_000_000, kept_files=0
    )


WITHOUT_LISTEN = 'node_id = 7\ndata_dir = "/tmp/x"\n'
TWO = 'listeners = ["INSIDE://10.0.0.7:9092", "OUTSIDE://:9093"]\n'
MAP = '"listener.security.protocol.map" = "INSIDE:PLAINTEXT,OUTSIDE:SSL"\n'
ADVERTISED = '"advertised.listeners" = "OUTSIDE://kafka.example:9093"\n'


def test_an_address_to_listen_on_is_the_default_listener() -> None:
    (listener,) = parse_node_config(MINIMAL + 'advertised = "kafka.example:1"').listeners.all
    assert (listener.name, listener.protocol) == ("PLAINTEXT", SecurityProtocol.PLAINTEXT)
    assert (listener.address, listener.advertised) == (Address("127.0.0.1", 9092), Address("kafka.example", 1))


@pytest.mark.parametrize("table", ["", "[configs]\n"], ids=["at the top", "in the table"])
def test_listeners_are_named_as_apache_kafka_names_them(table: str) -> None:
    config = parse_node_config(WITHOUT_LISTEN + table + TWO + MAP + ADVERTISED)
    inside, outside = config.listeners.all
    assert (inside.name, inside.protocol, inside.advertised) == (
        "INSIDE",
        SecurityProtocol.PLAINTEXT,
        Address("10.0.0.7", 9092),
    )
    assert (outside.name, outside.protocol, outside.advertised) == (
        "OUTSIDE",
        SecurityProtocol.SSL,
        Address("kafka.example", 9093),
    )
    assert config.listen == Address("10.0.0.7", 9092)
    described = config.broker_view().static_configs
    assert described["listeners"] == "INSIDE://10.0.0.7:9092,OUTSIDE://:9093"
    assert described["advertised.listeners"] == "INSIDE://10.0.0.7:9092,OUTSIDE://kafka.example:9093"


def test_a_mistake_in_a_secret_is_told_without_it() -> None:
    with pytest.raises(QuorateError, match=r"listener\.name\.plaintext\.plain\.sasl\.jaas\.config") as raised:
        parse_node_config(MINIMAL + '"listener.name.plaintext.plain.sasl.jaas.config" = "my-secret"')
    assert "my-secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("node_id = ", "not valid TOML"),
        ('data_dir = "x"\nlisten = "a:1"', "'node_id' is missing"),
        (MINIMAL + 'durabilty = "os"', "did you mean 'durability'"),
        (MINIMAL + 'durability = "maybe"', "durability"),
        (MINIMAL + "[configs]\nnum.partitions = 3", 'go in quotes: "num.partitions"'),
        (MINIMAL + '[configs]\n"num.partition" = 3', r"did you mean num\.partitions"),
        (MINIMAL + '[configs]\n"num.partitions" = "many"', r"num\.partitions"),
        (MINIMAL.replace("= 7", "= -7"), "a node id is a number from 0 to 2147483647, not -7"),
        (MINIMAL.replace("= 7", "= 2147483648"), "a node id is a number from 0 to 2147483647, not 2147483648"),
        (MINIMAL + '[voters]\n2147483648 = "a:1"', "a node id is a number from 0 to 2147483647"),
        (MINIMAL.replace("= 7", '= "seven"'), "node_id"),
        (MINIMAL + "log = 3", r"\[log\] is a table"),
        (MINIMAL + '[log]\nlevle = "info"', r"\[log\] unknown key 'levle'; did you mean 'level'"),
        (MINIMAL + '[log]\nlevel = "loud"', r"\[log\] level must be one of 'debug', 'info', .*, not 'loud'"),
        (MINIMAL + '[log]\nformat = "xml"', r"\[log\] format must be one of 'text', 'json', not 'xml'"),
        (MINIMAL + "[log]\nmax_bytes = 5", r"\[log\] max_bytes must be 65536 or more, not 5"),
        (MINIMAL + '[log]\nmax_bytes = "5"', r"\[log\] .*max_bytes"),
        (MINIMAL + "[log]\nkept_files = -1", r"\[log\] kept_files must be 0 to 1000, not -1"),
        (MINIMAL + '[log]\nfile = ""', r"\[log\] file must name a file"),
        (MINIMAL.replace("127.0.0.1:9092", "0.0.0.0:9092"), "advertised"),
        (MINIMAL + 'advertised = "0.0.0.0:9092"', "no address that clients can connect to"),
        (MINIMAL + 'advertised = "host:9092:9092"', "form host:port"),
        (MINIMAL.replace('"127.0.0.1:9092"', "9092"), "listen must be a text"),
        (MINIMAL + TWO + MAP + ADVERTISED, "either listeners or listen"),
        (WITHOUT_LISTEN + TWO + MAP, "OUTSIDE at :9093 has no address that clients can connect to"),
        (WITHOUT_LISTEN + TWO + ADVERTISED, "INSIDE has no security protocol"),
        (WITHOUT_LISTEN + TWO + MAP + ADVERTISED + "[configs]\n" + MAP, "stands at the top and in"),
        (MINIMAL + 'advertised.listeners = "A://b:1"', 'go in quotes: "advertised.listeners"'),
        (MINIMAL + '"listener.name.outside.ssl.client.auth" = "required"', "not among listeners: PLAINTEXT"),
        (MINIMAL + '"listener.name.plaintext.ssl.client.auht" = "none"', "Unknown configuration"),
        (MINIMAL + '"listener.name.plaintext.ssl.client.auth" = "maybe"', "ssl.client.auth.*none"),
    ],
)
def test_a_mistake_is_named(text: str, complaint: str) -> None:
    with pytest.raises(QuorateError, match=complaint):
        parse_node_config(text)
