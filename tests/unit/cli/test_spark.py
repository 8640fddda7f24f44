"""Where a job runs and with what: the command line wins over the file, and the same options are everywhere."""

import pytest
from typer.testing import CliRunner

from quorate.backup.config import SparkConfig
from quorate.cli.commands import app
from quorate.cli.spark import spark_settings
from quorate.kernel.errors import QuorateError

FILE = SparkConfig(remote="sc://file:1", conf={"spark.a": "file", "spark.b": "file"})


def test_command_line_wins_over_the_file() -> None:
    settings = spark_settings("spark://typed:7077", None, ["spark.b=typed=too", "spark.c="], None, file=FILE)
    assert (settings.master, settings.remote) == ("spark://typed:7077", None)
    assert settings.conf == {"spark.a": "file", "spark.b": "typed=too", "spark.c": ""}


def test_what_is_not_typed_is_the_file_s() -> None:
    assert spark_settings(None, None, None, None, file=FILE).remote == "sc://file:1"
    assert spark_settings(None, "sc://typed:2", None, None, file=FILE).remote == "sc://typed:2"
    assert spark_settings(None, None, None, None).master == "local[*]"


def test_conf_that_is_no_pair_is_told() -> None:
    with pytest.raises(QuorateError, match=r"--conf 'spark\.a' is not of the form NAME=VALUE"):
        spark_settings(None, None, ["spark.a"], None)


def test_spark_is_kept_warm_only_where_somebody_says_so() -> None:
    warm = SparkConfig(keep_warm="10m")
    assert spark_settings(None, None, None, None).keep_warm_s is None
    assert spark_settings(None, None, None, None, file=FILE).keep_warm_s is None
    assert spark_settings(None, None, None, None, file=warm).keep_warm_s == 600
    assert spark_settings(None, None, None, "90s", file=warm).keep_warm_s == 90
    assert spark_settings(None, None, None, "off", file=warm).keep_warm_s is None
    with pytest.raises(QuorateError, match="--keep-warm: 'soon' is not a duration such as 90s, 10m or 1h"):
        spark_settings(None, None, None, "soon", file=warm)


@pytest.mark.parametrize("command", ["backup", "restore", "verify", "compact", "export"])
def test_every_command_that_runs_on_spark_takes_its_settings(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(app, [command, "--help"], color=False).output
    assert "--conf" in shown
    assert "--master" in shown
    assert "--keep-warm" in shown
