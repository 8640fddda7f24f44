"""``quorate up``: a local cluster until Ctrl-C."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from quorate.cli.local_cluster import LocalCluster, NodePorts
from quorate.kernel.errors import QuorateError

#: Nodes listen for each other on the ports this far above those for clients.
_PEER_PORTS_ABOVE = 1000


def up(
    nodes: Annotated[int, typer.Option(min=1, help="How many nodes to run.")] = 3,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The Kafka port of the first node.")] = 19092,
    data: Annotated[Path, typer.Option(help="The folder for the data, the logs and cluster.json.")] = Path(
        "quorate-data"
    ),
) -> None:
    """Run a local cluster, one process a node, until Ctrl-C. What was written is there again at the next start."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # SIGINT too: a shell that starts the command in the background has it ignored.
        signal.signal(number, _interrupt)
    try:
        with LocalCluster(data.absolute(), _ports(port, nodes)) as cluster:
            for node in cluster.nodes:
                print(f"node {node.node_id}: {node.address} pid {node.process.pid} log {node.log_path}", flush=True)
            print(f"ready: {cluster.bootstrap_servers}", flush=True)
            for node in cluster.ends():
                print(
                    f"node {node.node_id} has ended; see its log. The others go on. "
                    f"To have it back: quorate serve --config {node.config_path}",
                    file=sys.stderr,
                )
            raise QuorateError("all nodes have ended")
    except KeyboardInterrupt:
        print("stopped", flush=True)


def _ports(first: int, nodes: int) -> list[NodePorts]:
    if first + _PEER_PORTS_ABOVE + nodes > 65536:
        raise QuorateError(f"--port {first} leaves no room for the nodes' other ports: choose a lower one")
    return [NodePorts(kafka=first + index, peer=first + _PEER_PORTS_ABOVE + index) for index in range(nodes)]


def _interrupt(number: int, frame: object) -> None:  # noqa: ARG001 - the signature of a signal handler
    raise KeyboardInterrupt
