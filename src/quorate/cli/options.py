"""Options that several commands have, and what becomes of them: a client, configs by name, a file of settings."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.cli.terminal import tell
from quorate.kernel.errors import QuorateError

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


def parse_configs(given: Iterable[str] | None, option: str = "--config") -> dict[str, str]:
    configs = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise QuorateError(f"{option} {text!r} is not of the form NAME=VALUE")
        configs[name.strip()] = value
    return configs


def read_settings_file(path: Path) -> str:
    """A file that a user wrote: UTF-8, whatever the locale says; a byte order mark is passed over."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise QuorateError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise QuorateError(f"cannot read {path}: it is not UTF-8 text") from None
