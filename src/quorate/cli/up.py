"""``quorate up``: a local cluster until Ctrl-C."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from quorate.cli.interruption import raise_when_stopped
from quorate.cli.options import parse_configs
from quorate.cli.serve import FirstUserOption, FirstUserPasswordOption, parse_first_user_options
from quorate.kernel.errors import QuorateError


def up(  # noqa: PLR0917 - typer calls it by name
    nodes: Annotated[int | None, typer.Option(min=1, help="How many nodes to run: 3 at the first start.")] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="The Kafka port of the first node: 19092 at the first start. The others have the next ones. For each "
            "other they listen 1000 above, or on the next port that is free.",
        ),
    ] = None,
    data: Annotated[Path, typer.Option(help="The folder for the data, the logs and cluster.json.")] = Path(
        "quorate-data"
    ),
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="A broker config for all nodes; may be repeated."),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="Make it a cluster with TLS, logins and ACLs, and a client.properties by which clients connect.",
        ),
    ] = False,
    first_user: FirstUserOption = None,
    first_user_password_file: FirstUserPasswordOption = None,
) -> None:
    """Run a local cluster, one process a node, until Ctrl-C. What was written is there again at the next start.

    The first start writes a node.toml for each node; later ones keep them, with whatever was changed in them by hand.
    """
    from quorate.cli.local.cluster import LocalCluster
    from quorate.cli.local.layout import Wishes

    wishes = Wishes(
        nodes=nodes,
        port=port,
        configs=parse_configs(config),
        secure=secure,
        first_user=parse_first_user_options(first_user, first_user_password_file),
    )
    raise_when_stopped()
    try:
        with LocalCluster(data.absolute(), wishes, _tell) as cluster:
            for node in cluster.nodes:
                print(f"node {node.node_id}: {node.address} pid {node.process.pid} log {node.log_path}", flush=True)
            for line in cluster.security.instructions() if cluster.security is not None else ():
                print(line, flush=True)
            print(f"ready: {cluster.bootstrap_servers}", flush=True)
            for node in cluster.ends():
                print(
                    f"node {node.node_id} has ended; see its log. The others go on. "
                    f"To have it back: quorate serve --config {node.config_path}",
                    file=sys.stderr,
                )
            raise QuorateError("all nodes have ended")
    except KeyboardInterrupt:
        with suppress(OSError):  # There may be no terminal any more.
            print("stopped", flush=True)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
