"""The node's file: what it may say, and how a mistake in it is told."""

import pytest

from quorate.broker.config import Durability, parse_node_config
from quorate.kernel.address import Address, parse_address
from quorate.kernel.errors import QuorateError

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
        (MINIMAL.replace("= 7", "= -7"), "node_id"),
        (MINIMAL.replace("= 7", '= "seven"'), "node_id"),
        (MINIMAL.replace("127.0.0.1:9092", "0.0.0.0:9092"), "advertised"),
        (MINIMAL + 'advertised = "0.0.0.0:9092"', "no address that clients can connect to"),
        (MINIMAL + 'advertised = "host:9092:9092"', "form host:port"),
        (MINIMAL.replace('"127.0.0.1:9092"', "9092"), "listen must be a text"),
    ],
)
def test_a_mistake_is_named(text: str, complaint: str) -> None:
    with pytest.raises(QuorateError, match=complaint):
        parse_node_config(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:1", Address("localhost", 1)),
        ("[::1]:65535", Address("::1", 65535)),
        (":9092", Address("", 9092)),
    ],
)
def test_an_address_reads_back_as_written(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "host:65536", "host:1:1", "::1:9092", "host:-1"])
def test_a_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(QuorateError, match="host:port"):
        parse_address(text)
