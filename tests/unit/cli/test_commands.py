"""What the command line says of options that cannot be meant."""

import pytest
import typer
from typer.testing import CliRunner

import quorate
from quorate.cli.commands import app, kafka_backup
from quorate.kernel import native


@pytest.mark.parametrize("commands", [app, kafka_backup], ids=["quorate", "kafka-backup"])
def test_a_wrong_word_is_told_with_the_right_ones_and_nothing_before_it(commands: typer.Typer) -> None:
    result = CliRunner().invoke(
        commands, ["prune", "--storage", "file:///x", "--format", "xml"], env={"COLUMNS": "200"}
    )

    assert result.exit_code == 2
    assert "'--format': 'xml' is not one of 'text', 'json'" in result.output


def test_version_tells_which_kernel_is_used() -> None:
    result = CliRunner().invoke(app, ["--version"])

    assert result.exit_code == 0
    assert result.output.splitlines() == [f"quorate {quorate.__version__}", f"kernel: {native.choice}"]
