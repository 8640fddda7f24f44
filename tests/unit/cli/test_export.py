"""What ``quorate export`` says to mistakes, before anything is started."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quorate.cli.commands import app
from quorate.client.config import ClientConfig
from quorate.kernel.errors import QuorateError

LIVE = ("--bootstrap-servers", "127.0.0.1:1")


def refusal(folder: Path, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["export", "--output", str(folder), *arguments])
    assert isinstance(result.exception, QuorateError), result
    return str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "give the option backup (a storage URL) or bootstrap_servers"),
        ((*LIVE, "--to", "csv"), "--to csv: choose one of parquet, delta, iceberg"),
        ((*LIVE, "--option", "topicz=a"), "unknown option 'topicz'; did you mean 'topics'?"),
        ((*LIVE, "--option", "topics"), "--option 'topics' is not of the form name=value"),
        ((*LIVE, "--live"), "--live needs --config"),
        ((*LIVE, "--option", "Password=hunter2"), "--option Password: whoever may see processes reads it there"),
        ((*LIVE, "--option", "columns=offset"), "the option columns leaves out topic"),
    ],
)
def test_mistake_is_told_before_spark_is_started(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    assert sentence in refusal(tmp_path / "table", *arguments)


@pytest.mark.skipif(find_spec("deltalake") is not None, reason="the package is there")
def test_table_format_without_its_package_says_what_to_install(tmp_path: Path) -> None:
    sentence = "export to delta needs the package deltalake: pip install 'quorate[delta]'"
    assert refusal(tmp_path / "table", *LIVE, "--to", "delta") == sentence


def test_finished_export_is_not_overwritten_unasked(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    assert "holds a finished export" in refusal(tmp_path, *LIVE)


def test_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    assert "holds thesis.tex, which is of no export" in refusal(tmp_path, *LIVE)
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_config_gives_the_source_with_its_security(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from quorate.backup.spark.data_source.options import BackupSource, parse_options
    from quorate.cli.backup import read_backup_config
    from quorate.cli.export import options_of_config

    monkeypatch.setenv("SECRET", "p")
    path = tmp_path / "backup.yaml"
    path.write_text(
        "backup_id: nightly\n"
        "source:\n"
        "  bootstrap_servers: ['a:1', 'b:2']\n"
        "  topics: {include: ['orders-*'], exclude: ['*-tmp']}\n"
        "  security: {protocol: SASL_SSL, sasl_mechanism: PLAIN, username: u, password: '${SECRET}',"
        " verify_hostname: false}\n"
        "storage: {url: 's3://bucket/prefix', endpoint: 'http://minio:9000'}\n"
    )
    config = read_backup_config(path)

    backup = parse_options(options_of_config(config, live=False)).source
    live = parse_options(options_of_config(config, live=True))

    assert isinstance(backup, BackupSource)
    assert (backup.location.url, backup.location.endpoint) == ("s3://bucket/prefix/nightly", "http://minio:9000")
    assert isinstance(live.source, ClientConfig)
    assert live.source.bootstrap_servers == ("a:1", "b:2")
    assert (live.source.security.password, live.source.security.verify_hostname) == ("p", False)
    assert live.topics.selects("orders-1")
    assert not live.topics.selects("orders-tmp")


def test_a_command_config_gives_the_cluster_and_its_security(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from quorate.backup.spark.data_source.options import parse_options
    from quorate.cli.export import options_of_cluster

    path = tmp_path / "client.properties"
    path.write_text(
        "bootstrap.servers=a:1,b:2\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        'sasl.jaas.config=x.PlainLoginModule required username="u" password="p";\n'
    )

    live = parse_options(options_of_cluster(path)).source

    assert isinstance(live, ClientConfig)
    assert live.bootstrap_servers == ("a:1", "b:2")
    assert (live.security.username, live.security.password, live.security.verify_hostname) == ("u", "p", True)
