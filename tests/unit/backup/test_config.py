"""The config file of a backup: defaults, variables, and one clear sentence for each mistake."""

from itertools import pairwise
from pathlib import Path

import pytest

from quorate.backup.config import BackupConfig, parse_backup_config, parse_keep_warm_s
from quorate.backup.errors import ConfigError, StorageError
from quorate.backup.manifests.manifest import Isolation, Mode
from quorate.backup.objects.storage import StorageLocation
from quorate.backup.segments.layout import FrameCodec
from quorate.client.client_properties import ClientProperties
from quorate.client.security_config import SecurityConfig
from quorate.security.listeners import SecurityProtocol

SMALLEST = """
backup_id: nightly
source: {bootstrap_servers: ["broker-1:9092"]}
storage: {url: "file:///var/backups"}
"""

FULL = """
backup_id: nightly
source:
  bootstrap_servers: ["broker-1:9092", "[::1]:9092"]
  topics: {include: ["orders-*", "payments"], exclude: ["*-tmp"]}
  metadata_refresh_interval_ms: 5000
  security:
    {protocol: SASL_SSL, sasl_mechanism: SCRAM-SHA-512, username: u, password: "${KAFKA_PASSWORD}", ca_location: ca.pem}
storage: {url: "s3://bucket/prefix", endpoint: null}
backup:
  mode: incremental
  isolation: read_uncommitted
  compression: lz4
  segment_max_bytes: 2000000
  consumer_groups: false
spark: {master: "local[2]", remote: null, conf: {spark.ui.enabled: "false"}}
"""


def parse(text: str, **environment: str) -> BackupConfig:
    return parse_backup_config(text, environment, "backup.yaml")


def complaint(text: str, **environment: str) -> str:
    with pytest.raises(ConfigError) as refusal:
        parse(text, **environment)
    sentence = str(refusal.value)
    assert sentence.startswith("backup.yaml: ")
    assert "\n" not in sentence
    return sentence.removeprefix("backup.yaml: ")


def test_every_key_has_a_default_where_one_can_serve() -> None:
    config = parse(SMALLEST)

    assert config.source.topics.include == ("*",)
    assert config.source.metadata_refresh_interval_ms == 30_000
    assert config.source.security.protocol == "PLAINTEXT"
    assert (config.backup.mode, config.backup.isolation) == (Mode.SNAPSHOT, Isolation.READ_COMMITTED)
    assert (config.codec, config.backup.segment_max_bytes) == (FrameCodec.ZSTD, 134_217_728)
    assert (config.backup.consumer_groups, config.backup.rate_limit_bytes_per_second) == (True, None)
    assert (config.spark.master, config.spark.remote, config.spark.conf) == ("local[*]", None, {})
    assert config.location == StorageLocation("file:///var/backups").below("nightly")


def test_every_key_of_a_full_file_is_read() -> None:
    config = parse(FULL, KAFKA_PASSWORD="p: [x]")

    assert config.source.bootstrap_servers == ("broker-1:9092", "[::1]:9092")
    assert config.source.topics.exclude == ("*-tmp",)
    assert config.source.security.password == "p: [x]"
    assert (config.source.security.protocol.uses_tls, config.source.security.protocol.uses_sasl) == (True, True)
    assert (config.backup.mode, config.codec) == (Mode.INCREMENTAL, FrameCodec.LZ4)
    assert config.run_settings.include == ["orders-*", "payments"]
    assert config.spark.conf == {"spark.ui.enabled": "false"}


def test_a_password_is_never_shown() -> None:
    config = parse(FULL, KAFKA_PASSWORD="hunter2")

    assert "hunter2" not in repr(config)
    assert "hunter2" not in repr(config.run_settings)


@pytest.mark.parametrize(
    ("wrong", "right", "sentence"),
    [
        ("spork:", "spark:", "unknown key 'spork'; did you mean 'spark'?"),
        ("metadata_refresh_ms:", "metadata_refresh_interval_ms:", "did you mean 'metadata_refresh_interval_ms'?"),
        ("pasword:", "password:", "unknown key 'source.security.pasword'; did you mean 'password'?"),
        ("includes:", "include:", "unknown key 'source.topics.includes'; did you mean 'include'?"),
        ("zzz:", "compression:", "unknown key 'backup.zzz'; known here are "),
    ],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest_known_one(wrong: str, right: str, sentence: str) -> None:
    assert sentence in complaint(FULL.replace(right, wrong), KAFKA_PASSWORD="p")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("mode: incremental", "mode: once"), "backup.mode: 'once' is not one of snapshot, incremental, continuous"),
        (("compression: lz4", "compression: gzip"), "backup.compression: 'gzip' is not one of lz4, none, zstd"),
        (
            ("isolation: read_uncommitted", "isolation: serializable"),
            "backup.isolation: 'serializable' is not one of read_uncommitted, read_committed",
        ),
        (("2000000", "a lot"), "backup.segment_max_bytes: 'a lot' is not a size"),
        (("2000000", "1000"), "backup.segment_max_bytes must be at least 1048576"),
        (("5000", "0"), "source.metadata_refresh_interval_ms must be above 0 and is 0"),
        (("backup_id: nightly", "backup_id: a/b"), "backup_id 'a/b' may hold only letters"),
        (("backup_id: nightly", "backup_id: '..'"), "backup_id '..' may hold only letters"),
        (("backup_id: nightly", "backup_id: ''"), "backup_id '' may hold only letters"),
        (("backup_id: nightly", ""), "Object missing required field `backup_id`"),
        (('"broker-1:9092", "[::1]:9092"', ""), "source.bootstrap_servers names no server"),
        (
            ("broker-1:9092", "broker-1"),
            "source.bootstrap_servers holds 'broker-1', which is not of the form host:port",
        ),
        (("username: u, ", ""), "source.security.username is needed with protocol SASL_SSL"),
        (("SASL_SSL", "PLAINTEXT"), "source.security.sasl_mechanism means nothing with protocol PLAINTEXT"),
        (("SASL_SSL", "SASL_PLAINTEXT"), "source.security.ca_location means nothing with protocol SASL_PLAINTEXT"),
        (("ca_location", "key_location"), "source.security.key_location needs certificate_location"),
        (("SCRAM-SHA-512", "GSSAPI"), "source.security.sasl_mechanism: 'GSSAPI' is not one of"),
    ],
)
def test_a_value_that_cannot_be_meant_is_named(change: tuple[str, str], sentence: str) -> None:
    assert sentence in complaint(FULL.replace(*change), KAFKA_PASSWORD="p")


def test_a_missing_variable_is_named_with_the_key_that_asks_for_it() -> None:
    sentence = complaint(FULL)

    assert sentence == ("source.security.password asks for the environment variable 'KAFKA_PASSWORD', which is not set")


def test_variables_fill_in_numbers_and_parts_of_texts_and_can_be_escaped() -> None:
    text = SMALLEST.replace("nightly", '"${ID}-x"').replace("file:///var/backups", "file:///$${a}/b")
    text += "backup: {segment_max_bytes: '${SIZE}'}\n"

    config = parse(text, ID="a", SIZE="3000000")

    assert (config.backup_id, config.storage.url, config.backup.segment_max_bytes) == (
        "a-x",
        "file:///${a}/b",
        3_000_000,
    )


def test_a_variable_never_becomes_a_key() -> None:
    config = parse(SMALLEST.replace("broker-1", "${HOST}"), HOST="a: {b: c}")

    assert config.source.bootstrap_servers == ("a: {b: c}:9092",)


def test_a_key_given_twice_is_refused() -> None:
    assert complaint(SMALLEST + "backup_id: weekly\n") == "line 5, column 1: key 'backup_id' is given twice"


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just text"])
def test_a_file_without_settings_is_refused(text: str) -> None:
    assert complaint(text) == "it holds no settings"


def test_text_that_is_not_yaml_is_refused_with_its_place() -> None:
    assert complaint("a: [1,\nb: }").startswith("line 2, column ")


def test_a_date_or_number_that_is_none_is_told_with_its_place() -> None:
    assert complaint("backup_id: 2026-13-01\n") == "line 1, column 12: month must be in 1..12"
    assert complaint(f"backup_id: {'9' * 5000}\n").startswith("line 1, column 12: Exceeds the limit")


def test_a_few_lines_that_stand_for_billions_of_values_are_refused() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{name}: &{name} [{', '.join(['*' + before] * 9)}]" for before, name in pairwise("abcdefghi")]

    assert complaint("\n".join(lines)) == "it holds more than 100000 values"


@pytest.mark.parametrize("text", ["backup_id: &a [*a]\n", "backup_id: " + "[" * 5000, "a: " + "[" * 60 + "]" * 60])
def test_what_is_nested_without_end_is_refused(text: str) -> None:
    assert complaint(text) == "it is nested more than 50 levels deep"


def test_code_in_yaml_is_not_run() -> None:
    assert "could not determine a constructor" in complaint("backup_id: !!python/object/apply:os.getcwd []")


def test_the_storage_url_is_checked_at_once() -> None:
    with pytest.raises(StorageError, match="names no bucket"):
        parse(SMALLEST.replace("file:///var/backups", "s3://"))


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("{interval_ms: 0}", "maintenance.interval_ms must be above 0"),
        ("{keep_hourly: -1}", "maintenance.keep_hourly must not be below 0"),
        ("{keep_houry: 1}", "unknown key 'maintenance.keep_houry'; did you mean 'keep_hourly'?"),
    ],
)
def test_mistakes_in_the_maintenance_are_named(section: str, expected: str) -> None:
    assert expected in complaint(f"{SMALLEST}maintenance: {section}\n")


KAFKAS_OWN = """
backup_id: nightly
source:
  bootstrap_servers: [a:1]
  properties:
    security.protocol: SASL_PLAINTEXT
    sasl.mechanism: PLAIN
    sasl.jaas.config: org.apache.PlainLoginModule required username="u" password="${SECRET}";
storage: {url: "file:///var/backups"}
"""


def test_the_login_can_be_said_in_kafkas_own_names() -> None:
    source = parse(KAFKAS_OWN, SECRET='with "quotes" and \\').source

    assert (source.security.protocol, source.security.username) == ("SASL_PLAINTEXT", "u")
    assert source.security.password == 'with "quotes" and \\'
    assert source.bootstrap_servers == ("a:1",)
    assert not source.properties


def test_a_command_config_brings_the_login_and_servers_where_the_file_has_none() -> None:
    security = SecurityConfig(protocol=SecurityProtocol.SSL, ca_location="ca.pem")
    given = ClientProperties(bootstrap_servers="b:2,c:3", security=security)
    without = SMALLEST.replace('bootstrap_servers: ["broker-1:9092"]', "request_timeout_ms: 1000")
    assert parse_backup_config(SMALLEST, {}, "f", given).source.bootstrap_servers == ("broker-1:9092",)
    source = parse_backup_config(without, {}, "f", given).source
    assert (source.bootstrap_servers, source.security) == (("b:2", "c:3"), security)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("sasl.mechanism", "sasl.mechanisms"), "source.properties: unknown key 'sasl.mechanisms'; did you mean"),
        (("PLAIN\n", "SCRAM\n"), "source.properties: sasl.mechanism: 'SCRAM' is not one of PLAIN"),
        (
            ("  properties:", "  security: {protocol: SSL}\n  properties:"),
            "source.security and source.properties both say how to log in: leave one of them out",
        ),
    ],
)
def test_a_mistake_in_kafkas_own_names_is_named(change: tuple[str, str], sentence: str) -> None:
    assert sentence in complaint(KAFKAS_OWN.replace(*change), SECRET="p")


def test_a_secret_can_stand_in_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from a file\n")
    text = FULL.replace("${KAFKA_PASSWORD}", f"${{file:{secret}}}")

    assert parse(text).source.security.password == "from a file"
    secret.unlink()
    assert complaint(text) == f"source.security.password: {secret} cannot be read: No such file or directory"


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("10m", 600), ("90s", 90), ("1 h", 3600), ("off", None), ("'0'", None), ("0", None), ("null", None), ("0s", None)],
)
def test_how_long_a_spark_stays_warm(given: str, seconds: int | None) -> None:
    assert parse_keep_warm_s(parse(SMALLEST + f"spark: {{keep_warm: {given}}}").spark.keep_warm) == seconds


@pytest.mark.parametrize(
    "given", ["600", "10", "-5m", "1.5h", "true", "forever", "25h", "2d", "99999999999999h", "[1m]"]
)
def test_a_wrong_duration_is_named(given: str) -> None:
    assert "spark.keep_warm" in complaint(SMALLEST + f"spark: {{keep_warm: {given}}}")
