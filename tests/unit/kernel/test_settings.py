"""Sizes and words as people write them in settings, and what they are told when they mistype them."""

from enum import StrEnum
from typing import Literal

import msgspec
import pytest

from quorate.backup.config import parse_backup_config
from quorate.backup.errors import ConfigError
from quorate.backup.spark.data_source.options import parse_options
from quorate.broker.config import parse_node_config
from quorate.client.config import parse_client_config
from quorate.kernel.errors import QuorateError
from quorate.kernel.settings import check_choices, parse_duration_s, parse_size

NODE = 'node_id = 1\ndata_dir = "/x"\nlisten = "127.0.0.1:9092"\n'
BACKUP = """
backup_id: nightly
source: {{bootstrap_servers: ["b:9092"]}}
storage: {{url: "file:///x"}}
backup: {{{}}}
"""
LIVE = {"bootstrap_servers": "b:9092"}


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("1500", 1500),
        ("10MB", 10_000_000),
        ("10 mb", 10_000_000),
        ("1.5kB", 1_500),
        (" 64MiB ", 64 * 2**20),
        ("0.5GiB", 2**29),
        ("2TB", 2 * 10**12),
        ("1TiB", 2**40),
        ("7B", 7),
    ],
)
def test_sizes_take_units(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "MB", "10XB", "-5MB", "1e6", "10MB extra", "1.MB", "\u0661MB", "9" * 40, "1,5MB"])
def test_what_is_no_size_is_told(text: str) -> None:
    with pytest.raises(QuorateError, match="is not a size such as 10MB"):
        parse_size(text)


def test_settings_in_bytes_take_units() -> None:
    text = BACKUP.format("segment_max_bytes: 10MB, range_bytes: 64MiB, rate_limit_bytes_per_second: 1.5MB")
    backup = parse_backup_config(text, {}, "f").backup
    assert backup.segment_max_bytes == 10_000_000
    assert backup.range_bytes == 64 * 2**20
    assert backup.rate_limit_bytes_per_second == 1_500_000
    assert parse_options(LIVE | {"max_bytes_per_task": "10MB"}).max_bytes_per_task == 10_000_000


def test_size_that_is_none_is_told_with_its_key() -> None:
    with pytest.raises(ConfigError, match=r"f: backup\.segment_max_bytes: 'ten' is not a size such as 10MB"):
        parse_backup_config(BACKUP.format("segment_max_bytes: ten"), {}, "f")
    with pytest.raises(QuorateError, match="option max_bytes_per_task: 'x' is not a size"):
        parse_options(LIVE | {"max_bytes_per_task": "x"})
    with pytest.raises(QuorateError, match="option max_bytes_per_task: '1kB' is less than"):
        parse_options(LIVE | {"max_bytes_per_task": "1kB"})


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ('durability = "fast"', "durability: 'fast' is not one of fsync, os"),
        ("durability = 3", "durability: 3 is not one of fsync, os"),
        ('leader_placement = "x"', "leader_placement: 'x' is not one of "),
    ],
)
def test_wrong_word_in_a_node_file_names_the_right_ones(setting: str, sentence: str) -> None:
    with pytest.raises(QuorateError, match=sentence):
        parse_node_config(NODE + setting)


def test_wrong_word_of_a_client_names_the_right_ones() -> None:
    raw = {"bootstrap_servers": "b:9092", "security": {"protocol": "SASL"}}
    with pytest.raises(QuorateError, match="security: protocol: 'SASL' is not one of PLAINTEXT, SSL, SASL_PLAINTEXT"):
        parse_client_config(raw)


@pytest.mark.parametrize("value", ["fast", "7", "[zstd]", "true"])
def test_wrong_word_in_a_backup_file_names_the_right_ones(value: str) -> None:
    with pytest.raises(ConfigError, match=r"f: backup\.compression: .* is not one of (.*, )?lz4"):
        parse_backup_config(BACKUP.format(f"compression: {value}"), {}, "f")


def test_choice_that_may_be_left_out_may_be_null() -> None:
    class Colour(StrEnum):
        RED = "red"

    class Settings(msgspec.Struct):
        colour: Colour | None = None
        shade: Literal["light", "dark"] | None = None
        other: int = 0

    check_choices({"colour": None, "shade": "dark", "other": 5, "unknown": 1}, Settings)
    with pytest.raises(QuorateError, match="there: shade: 'grey' is not one of"):
        check_choices({"shade": "grey"}, Settings, "there: ")


@pytest.mark.parametrize(
    ("partitions", "sentence"),
    [
        ("5-1", "'5-1' ends before it starts; did you mean 1-5\\?"),
        ("0-99999999999", "goes beyond partition"),
        ("0-" + "9" * 5000, "is neither a number nor a span"),
        ("\u00b2", "is neither a number nor a span"),
        ("-3", "is neither a number nor a span"),
        ("1-2-3", "is neither a number nor a span"),
    ],
)
def test_partitions_that_are_no_span_are_a_sentence(partitions: str, sentence: str) -> None:
    with pytest.raises(QuorateError, match=f"option partitions: .*{sentence}"):
        parse_options(LIVE | {"partitions": partitions})


def test_partitions_are_numbers_and_spans() -> None:
    assert parse_options(LIVE | {"partitions": "7, 1-3,2 - 4"}).partitions == frozenset({1, 2, 3, 4, 7})


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("2 min", 120), ("1H", 3600), ("1d", 86400)])
def test_durations_have_units(text: str, seconds: int) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "10ms", "1.5h", "-1s", "1h30m", "٣s", "9999999999s"])
def test_what_is_no_duration_is_told(text: str) -> None:
    with pytest.raises(QuorateError, match="is not a duration such as 90s, 10m or 1h"):
        parse_duration_s(text)
