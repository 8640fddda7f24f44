"""The node's file: what it may say, and how a mistake in it is told."""

import pytest

from quorate.broker.config import parse_node_config
from quorate.broker.log_settings import LogFormat, LogLevel, LogSettings
from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError
from quorate.kernel.settings import Durability

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
    ],
)
def test_a_mistake_is_named(text: str, complaint: str) -> None:
    with pytest.raises(QuorateError, match=complaint):
        parse_node_config(text)
