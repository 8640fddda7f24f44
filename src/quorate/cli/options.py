"""Options that several commands have, and what becomes of them: a client, configs by name, a file of settings."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from quorate.cli.terminal import tell
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    from quorate.client.client_properties import ClientProperties
    from quorate.client.config import ClientConfig
    from quorate.client.kafka_client import KafkaClient

BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        help="HOST:PORT of any node of the cluster; several with commas. Needed where --command-config names none.",
    ),
]
CommandConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="A client.properties as Kafka's tools take it: security.protocol, sasl.* and ssl.*, bootstrap.servers.",
    ),
]

#: A command is waited for: what does not work after this long is told.
DEFAULT_TIMEOUT_S = 15.0
#: Where many brokers of a large cluster may be asked, or one is just being started.
COPY_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_MS = 3_000

TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.1, help="Seconds to wait for the cluster before the command gives up.")
]


def client_config(bootstrap_server: str | None, command_config: Path | None, **settings: str | int) -> "ClientConfig":
    from quorate.client.config import parse_client_config

    properties = None if command_config is None else read_client_properties(command_config)
    servers = bootstrap_server or (None if properties is None else properties.bootstrap_servers)
    if servers is None:
        raise QuorateError(
            "name the cluster: --bootstrap-server HOST:PORT, or bootstrap.servers in the file of --command-config"
        )
    config = parse_client_config({"bootstrap_servers": servers, **settings})
    return config if properties is None else msgspec.structs.replace(config, security=properties.security)


def open_client(
    bootstrap_server: str | None, timeout_s: float = DEFAULT_TIMEOUT_S, command_config: Path | None = None
) -> "KafkaClient":
    """A client of a cluster that answers."""
    from quorate.client.first_contact import require_answer
    from quorate.client.kafka_client import KafkaClient

    config = client_config(
        bootstrap_server,
        command_config,
        client_id="quorate-cli",
        retry_timeout_ms=max(1, round(timeout_s * 1000)),
        connect_timeout_ms=_CONNECT_TIMEOUT_MS,
    )
    require_answer(config, timeout_s, tell)
    return KafkaClient(config)


def read_client_properties(path: Path) -> "ClientProperties":
    """Secrets in it may stand elsewhere, as ``${NAME}`` of the environment or ``${file:/path}``."""
    from quorate.client.client_properties import parse_client_properties, relevant_properties
    from quorate.security.properties import parse_properties, resolve_references

    text = read_settings_file(path)
    try:
        found = relevant_properties(parse_properties(text))
        return parse_client_properties(resolve_references(found, os.environ, read_secret))
    except QuorateError as error:
        raise QuorateError(f"{path}: {error}") from None


def read_secret(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


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
