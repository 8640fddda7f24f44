"""The command line. One module per command; this one joins them and turns mistakes into one sentence each."""

import sys
from typing import Annotated

import typer

from quorate import __version__
from quorate.cli import demo, serve, up
from quorate.kernel.errors import QuorateError

app = typer.Typer(
    help="A Kafka-compatible log cluster that always names the true partition leader.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("serve")(serve.serve)
app.command("up")(up.up)
app.command("demo")(demo.demo)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False) -> None:
    if version:
        print(f"quorate {__version__}")
        raise typer.Exit


def main() -> None:
    try:
        app()
    except QuorateError as error:
        print(f"quorate: {error}", file=sys.stderr)
        sys.exit(1)
