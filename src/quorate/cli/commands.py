"""The commands of ``quorate`` and of ``kafka-backup``, joined; mistakes become one sentence each.

A plain ``pip install quorate`` has none of the packages that its extras bring, as a cluster needs none. So no command
checks for them: whatever misses one, the same sentence says it.
"""

import logging
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from quorate import __version__
from quorate.broker.log_output import LineFormatter
from quorate.cli import (
    backup,
    demo,
    doctor,
    export,
    offsets,
    restore,
    serve,
    spark,
    stored_backups,
    tls,
    topics,
    up,
    upkeep,
)
from quorate.cli.cluster import nodes, rebalance
from quorate.kernel import native
from quorate.kernel.errors import QuorateError

_EXTRAS = {
    "botocore": "aws",
    "obstore": "backup",
    "pyarrow": "backup",
    "pyspark": "backup",
    "py4j": "backup",
    "yaml": "backup",
    "google": "connect",
    "grpc": "connect",
    "grpc_status": "connect",
    "pandas": "connect",
    "zstandard": "connect",
    "deltalake": "delta",
    "pyiceberg": "iceberg",
}

_PARSER_PREFIX = "Value error, "  # What Typer's parser begins with where a word is none of those to choose from.


class Commands(TyperGroup):
    """Says what is wrong with an option in the words of the command line."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix(_PARSER_PREFIX)
            raise


cluster = typer.Typer(help="Look after a running cluster: its nodes, its quorum, its partitions.", no_args_is_help=True)
cluster.command("status")(nodes.status)
cluster.command("doctor")(doctor.doctor)
cluster.command("add-node")(nodes.add_node)
cluster.command("remove-node")(nodes.remove_node)
cluster.command("rebalance")(rebalance.rebalance)

app = typer.Typer(
    cls=Commands,
    help="A Kafka-compatible log cluster that always names the true partition leader.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("serve")(serve.serve)
app.command("up")(up.up)
app.add_typer(cluster, name="cluster")
app.add_typer(topics.app, name="topics")
app.add_typer(tls.app, name="tls")
app.command("demo")(demo.demo)
app.command("backup")(backup.backup)
app.command("restore")(restore.restore)
app.add_typer(offsets.app, name="offsets")
app.command("list-backups")(stored_backups.list_backups)
app.command("verify")(stored_backups.verify)
app.command("export")(export.export)
app.command("compact")(upkeep.compact)
app.command("prune")(upkeep.prune)
app.command("hold")(upkeep.hold)
app.add_typer(spark.app, name="spark")

#: The backup commands under a name of their own.
kafka_backup = typer.Typer(
    cls=Commands,
    help="Back up any Kafka cluster with Spark: raw batches, byte for byte, from the partition leaders.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
kafka_backup.command("backup")(backup.backup)
kafka_backup.command("restore")(restore.restore)
kafka_backup.command("list-backups")(stored_backups.list_backups)
kafka_backup.command("verify")(stored_backups.verify)
kafka_backup.command("compact")(upkeep.compact)
kafka_backup.command("prune")(upkeep.prune)
kafka_backup.command("hold")(upkeep.hold)
kafka_backup.add_typer(spark.app, name="spark")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version, and whether the kernel is native, and stop.")
    ] = False,
) -> None:
    if version:
        print(f"quorate {__version__}\nkernel: {native.choice}")
        raise typer.Exit


def main() -> None:
    run(app, "quorate")


def kafka_backup_main() -> None:
    run(kafka_backup, "kafka-backup")


def run(commands: typer.Typer, name: str) -> None:
    # What is tried again is no news to a user: the outcome is told in one sentence. A node keeps a log of its own.
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter("%(message)s"))
    logging.basicConfig(level=logging.ERROR, handlers=[handler])
    try:
        commands()
    except QuorateError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(1)
    except ImportError as error:
        sentence = missing_extra(error)
        if sentence is None:
            raise
        print(f"{name}: {sentence}", file=sys.stderr)
        sys.exit(1)


def missing_extra(error: ImportError) -> str | None:
    """One sentence that names the extra; None where no extra would bring the module."""
    module = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(module)
    if extra is None:
        return None
    return f"this command needs {module}, which is not installed: pip install 'quorate[{extra}]'"
