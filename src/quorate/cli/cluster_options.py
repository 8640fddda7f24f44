"""What the commands that talk to a running cluster share: where it is, and how nodes are named."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from quorate.client.kafka_client import KafkaClient

BootstrapOption = Annotated[
    str, typer.Option("--bootstrap-server", help="HOST:PORT of any node of the cluster; several with commas.")
]

#: A command is waited for: what does not work after this long is told.
_RETRY_TIMEOUT_MS = 15_000
_CONNECT_TIMEOUT_MS = 3_000


def open_client(bootstrap_server: str) -> "KafkaClient":
    from quorate.client.config import parse_client_config
    from quorate.client.kafka_client import KafkaClient

    return KafkaClient(
        parse_client_config(
            {
                "bootstrap_servers": bootstrap_server,
                "client_id": "quorate-cli",
                "retry_timeout_ms": _RETRY_TIMEOUT_MS,
                "connect_timeout_ms": _CONNECT_TIMEOUT_MS,
            }
        )
    )


def node_list(nodes: Sequence[int]) -> str:
    return ",".join(str(node) for node in nodes) or "-"
