"""All that the client can be told, checked once.

The object pickles, so that it can travel to where the client is opened; files that it names are read there.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from quorate.client.security_config import SecurityConfig
from quorate.kernel.address import Address, parse_remote_address
from quorate.kernel.decoding import convert
from quorate.kernel.errors import QuorateError
from quorate.kernel.settings import check_choices


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    #: ``host:port`` each. Any one that answers will do; the brokers' own addresses come from the cluster.
    bootstrap_servers: tuple[str, ...]
    client_id: str = "quorate"
    security: SecurityConfig = SecurityConfig()
    #: Where this client stands; brokers that know racks then name the nearest replica to fetch from (KIP-392).
    rack: str | None = None
    metadata_refresh_interval_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    #: How long an operation is tried again without any progress.
    retry_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    #: One is opened first; more only while all that are open wait for answers.
    connections_per_broker: int = 1

    def __post_init__(self) -> None:
        if not self.bootstrap_servers:
            raise QuorateError("bootstrap_servers must name at least one host:port")
        for server in self.bootstrap_servers:
            parse_remote_address(server)
        for key, problem in self.security.problems():
            raise QuorateError(f"security: {key} {problem}")
        for key in _POSITIVE:
            if getattr(self, key) <= 0:
                raise QuorateError(f"{key} must be more than 0, not {getattr(self, key)}")
        if self.retry_backoff_max_ms < self.retry_backoff_ms:
            raise QuorateError("retry_backoff_max_ms must not be less than retry_backoff_ms")

    def bootstrap_addresses(self) -> list[Address]:
        return [parse_remote_address(server) for server in self.bootstrap_servers]


_POSITIVE = (
    "metadata_refresh_interval_ms",
    "connect_timeout_ms",
    "request_timeout_ms",
    "retry_timeout_ms",
    "retry_backoff_ms",
    "retry_backoff_max_ms",
    "connections_per_broker",
)


def parse_client_config(raw: Mapping[str, Any]) -> ClientConfig:
    """The config in the keys of a file. ``bootstrap_servers`` may also be one text with commas."""
    _refuse_unknown_keys(raw, ClientConfig.__struct_fields__, "")
    security = raw.get("security")
    if isinstance(security, Mapping):
        _refuse_unknown_keys(security, SecurityConfig.__struct_fields__, "security: ")
        check_choices(security, SecurityConfig, "security: ")
    servers = raw.get("bootstrap_servers", ())
    if isinstance(servers, str):
        servers = [server.strip() for server in servers.split(",") if server.strip()]
    try:
        return convert({**raw, "bootstrap_servers": servers}, ClientConfig)
    except msgspec.ValidationError as error:
        # A QuorateError from __post_init__ comes wrapped, with the place where it happened.
        raise QuorateError(str(error.__cause__ or error)) from None


def _refuse_unknown_keys(raw: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    for key in raw:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            raise QuorateError(f"{place}unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
