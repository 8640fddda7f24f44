"""``kafka-backup``: the backup commands under a name of their own."""

import typer

from quorate.cli.backup import backup
from quorate.cli.commands import run
from quorate.cli.compact import compact
from quorate.cli.hold import hold
from quorate.cli.list_backups import list_backups
from quorate.cli.prune import prune
from quorate.cli.restore import restore
from quorate.cli.verify import verify

app = typer.Typer(
    help="Back up any Kafka cluster with Spark: raw batches, byte for byte, from the partition leaders.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("backup")(backup)
app.command("restore")(restore)
app.command("list-backups")(list_backups)
app.command("verify")(verify)
app.command("compact")(compact)
app.command("prune")(prune)
app.command("hold")(hold)


def main() -> None:
    run(app, "kafka-backup")
