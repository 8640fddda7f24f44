"""What the commands that talk to a running cluster share: where it is, and how nodes are named."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from quorate.client.kafka_client import KafkaClient

BootstrapOption = Annotated[
    str, typer.Option("--bootstrap-server", help="HOST:PORT of any node of the cluster; several with commas.")
]

#: A command is waited for: what does not work after this long is told.
DEFAULT_TIMEOUT_S = 15.0
#: Where many brokers of a large cluster may be asked, or one is just being started.
COPY_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_MS = 3_000

TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.1, help="Seconds to wait for the cluster before the command gives up.")
]


def open_client(bootstrap_server: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> "KafkaClient":
    """A client of a cluster that answers."""
    from quorate.client.config import parse_client_config
    from quorate.client.first_contact import require_answer
    from quorate.client.kafka_client import KafkaClient

    config = parse_client_config(
        {
            "bootstrap_servers": bootstrap_server,
            "client_id": "quorate-cli",
            "retry_timeout_ms": max(1, round(timeout_s * 1000)),
            "connect_timeout_ms": _CONNECT_TIMEOUT_MS,
        }
    )
    require_answer(config, timeout_s, tell)
    return KafkaClient(config)


def tell(line: str) -> None:
    """Beside the output, for whoever watches."""
    print(f"quorate: {line}", file=sys.stderr, flush=True)


def node_list(nodes: Sequence[int]) -> str:
    return ",".join(str(node) for node in nodes) or "-"
