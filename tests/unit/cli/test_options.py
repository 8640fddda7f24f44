from pathlib import Path

import pytest

from quorate.cli.options import client_config, read_client_properties, read_settings_file
from quorate.kernel.errors import QuorateError


def test_a_file_that_is_not_text_is_told_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_bytes(b"\xff\xfen\x00o\x00d\x00e\x00")

    with pytest.raises(QuorateError, match=r"cannot read .*node\.toml: it is not UTF-8 text"):
        read_settings_file(path)


def test_a_folder_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(QuorateError, match="Is a directory"):
        read_settings_file(tmp_path)


def test_the_mark_that_windows_editors_begin_with_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "backup.yaml"
    path.write_bytes(b"\xef\xbb\xbfbackup_id: n\xc3\xa4chtlich\n")

    assert read_settings_file(path) == "backup_id: nächtlich\n"


def properties_file(folder: Path, *more: str) -> Path:
    path = folder / "client.properties"
    lines = [
        "bootstrap.servers=a:1,b:2",
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=PLAIN",
        'sasl.jaas.config=o.a.k.PlainLoginModule required username="alice" password="${file:PASSWORD}";',
        "group.id=${not looked at}",
        *more,
    ]
    secret = folder / "password"
    secret.write_text('it\'s "hers"\n')
    path.write_text("\n".join(lines).replace("PASSWORD", str(secret)))
    return path


def test_a_command_config_names_the_cluster_and_the_login(tmp_path: Path) -> None:
    config = client_config(None, properties_file(tmp_path), client_id="test")

    assert config.bootstrap_servers == ("a:1", "b:2")
    assert (config.security.username, config.security.password) == ("alice", 'it\'s "hers"')
    assert config.client_id == "test"


def test_the_command_line_wins_over_the_servers_of_the_file(tmp_path: Path) -> None:
    assert client_config("c:3", properties_file(tmp_path)).bootstrap_servers == ("c:3",)


def test_a_cluster_has_to_be_named() -> None:
    with pytest.raises(QuorateError, match=r"name the cluster: --bootstrap-server HOST:PORT, or bootstrap\.servers in"):
        client_config(None, None)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("ssl.keystore.locaton=/k.pem", r"client\.properties: unknown key 'ssl.keystore.locaton'; did you mean"),
        ("sasl.mechanism=${NO_SUCH_VARIABLE}", r"client\.properties: sasl.mechanism: the environment has no variable"),
        ("sasl.mechanism=${file:/nowhere}", r"client\.properties: sasl.mechanism: /nowhere cannot be read"),
    ],
)
def test_a_mistake_in_a_command_config_names_the_file_and_the_key(tmp_path: Path, line: str, sentence: str) -> None:
    with pytest.raises(QuorateError, match=sentence) as caught:
        read_client_properties(properties_file(tmp_path, line))

    assert "hers" not in str(caught.value)
