"""What the command line says of options that cannot be meant."""

import pytest
import typer
from typer.testing import CliRunner

from quorate.cli.commands import app, kafka_backup


@pytest.mark.parametrize("commands", [app, kafka_backup], ids=["quorate", "kafka-backup"])
def test_a_wrong_word_is_told_with_the_right_ones_and_nothing_before_it(commands: typer.Typer) -> None:
    result = CliRunner().invoke(
        commands, ["prune", "--storage", "file:///x", "--format", "xml"], env={"COLUMNS": "200"}
    )

    assert result.exit_code == 2
    assert "'--format': 'xml' is not one of 'text', 'json'" in result.output
