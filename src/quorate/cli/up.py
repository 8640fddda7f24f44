"""``quorate up``: a local cluster until Ctrl-C."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from quorate.cli.local_cluster import LocalCluster
from quorate.kernel.errors import QuorateError


def up(
    nodes: Annotated[int, typer.Option(min=1, help="How many nodes to run; this version runs one.")] = 1,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The Kafka port of the first node.")] = 19092,
    data: Annotated[Path, typer.Option(help="The folder for the data, the logs and cluster.json.")] = Path(
        "quorate-data"
    ),
) -> None:
    """Run a local cluster, one process a node, until Ctrl-C. What was written is there again at the next start."""
    if nodes > 1:
        raise QuorateError("this version runs a cluster of one node: --nodes 1")
    for number in (signal.SIGINT, signal.SIGTERM):
        # SIGINT too: a shell that starts the command in the background has it ignored.
        signal.signal(number, _interrupt)
    try:
        with LocalCluster(data.absolute(), [port + index for index in range(nodes)]) as cluster:
            for node in cluster.nodes:
                print(f"node {node.node_id}: {node.address} pid {node.process.pid} log {node.log_path}", flush=True)
            print(f"ready: {cluster.bootstrap_servers}", flush=True)
            cluster.wait()
            raise QuorateError("a node has ended; see its log")
    except KeyboardInterrupt:
        print("stopped", flush=True)


def _interrupt(number: int, frame: object) -> None:  # noqa: ARG001 - the signature of a signal handler
    raise KeyboardInterrupt
