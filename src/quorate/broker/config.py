"""The settings of one node, read from its TOML file and checked once, before anything starts. Pure."""

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

import msgspec

from quorate.kernel.errors import KafkaError, QuorateError
from quorate.kernel.ids import NodeId
from quorate.metadata.broker_configs import BROKER_CONFIGS
from quorate.metadata.config_definitions import find_definition
from quorate.metadata.effective_configs import BrokerView


class Durability(StrEnum):
    #: Records count as committed once they are on the disk (group-commit fdatasync).
    FSYNC = "fsync"
    #: Records count as committed once the operating system has them, as with Apache Kafka's defaults.
    OS = "os"


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    data_dir: str
    listen: Address
    #: What clients are told; None for the address that the node listens on.
    advertised: Address | None = None
    rack: str | None = None
    durability: Durability = Durability.FSYNC
    stop_grace_ms: int = 5000
    #: Broker configs by their Kafka names.
    configs: Mapping[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.node_id < 0:
            raise QuorateError(f"node_id must be 0 or more, not {self.node_id}")
        if not self.data_dir:
            raise QuorateError("data_dir must name a folder")
        for name, value in self.configs.items():
            try:
                find_definition(BROKER_CONFIGS, name).parse(value)
            except KafkaError as error:
                raise QuorateError(f"[configs] {error}") from None
        if self.listen.host in _ANY_ADDRESS and self.advertised is None:
            raise QuorateError(
                f"listen = {str(self.listen)!r} is no address that clients can connect to: "
                'name one with advertised = "host:port"'
            )
        if self.advertised is not None and self.advertised.host in _ANY_ADDRESS:
            raise QuorateError(f"advertised = {str(self.advertised)!r} is no address that clients can connect to")

    def broker_view(self) -> BrokerView:
        """Who this node is and what its file says, for resolving configs; addresses and folders described too."""
        described = {
            "node.id": str(self.node_id),
            "broker.id": str(self.node_id),
            "log.dirs": self.data_dir,
            "listeners": f"PLAINTEXT://{self.listen}",
            "advertised.listeners": f"PLAINTEXT://{self.advertised or self.listen}",
        }
        if self.rack is not None:
            described["broker.rack"] = self.rack
        return BrokerView(node_id=self.node_id, static_configs={**self.configs, **described})


_ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})
_KEYS = NodeConfig.__struct_fields__


def parse_address(text: str) -> Address:
    """``host:port`` or ``[v6]:port``; nothing else, so that a port given twice is noticed."""
    host, separator, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise QuorateError(f"{text!r} is not an address of the form host:port")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise QuorateError(f"{text!r} is not an address of the form host:port")
    return Address(host, int(port))


def parse_node_config(text: str) -> NodeConfig:
    """The settings in a node's TOML file; a mistake is one sentence that says what to change."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise QuorateError(f"not valid TOML: {error}") from None
    for key in raw:
        if key not in _KEYS:
            near = get_close_matches(key, _KEYS, n=1)
            raise QuorateError(f"unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    for key in ("node_id", "data_dir", "listen"):
        if key not in raw:
            raise QuorateError(f"the key {key!r} is missing")
    for key in ("listen", "advertised"):
        if key in raw:
            raw[key] = parse_address(_text_of(key, raw[key]))
    raw["configs"] = {name: _config_text(name, value) for name, value in raw.get("configs", {}).items()}
    try:
        return msgspec.convert(raw, NodeConfig)
    except msgspec.ValidationError as error:
        raise QuorateError(str(error)) from None


def _text_of(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise QuorateError(f'{key} must be a text such as "127.0.0.1:9092"')
    return value


def _config_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        raise QuorateError(f'[configs] names hold dots, so they go in quotes: "{name}.{next(iter(value), "")}" = …')
    return str(value)
