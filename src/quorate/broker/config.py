"""The settings of one node, read from its TOML file and checked once, before anything starts."""

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from quorate.broker.first_user import FirstUser, parse_first_user
from quorate.broker.log_settings import AuditSettings, LogSettings, parse_audit_settings, parse_log_settings
from quorate.kernel.address import Address, parse_address
from quorate.kernel.decoding import convert
from quorate.kernel.errors import KafkaError, QuorateError
from quorate.kernel.ids import MAX_NODE_ID, NodeId
from quorate.kernel.settings import Durability, check_choices
from quorate.metadata.core.broker_configs import find_broker_definition
from quorate.metadata.core.effective_configs import BrokerView
from quorate.metadata.core.placement import LeaderPlacement
from quorate.metadata.core.records import DEFAULT_LISTENER
from quorate.quorum.config import QuorumConfig
from quorate.security.listeners import Listeners, parse_listeners


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    data_dir: str
    listen: Address
    #: What clients are told; None for the address that the node listens on.
    advertised: Address | None = None
    rack: str | None = None
    durability: Durability = Durability.FSYNC
    #: The same on all nodes of a cluster: a node of another one is refused. A node by itself may go without.
    cluster_id: str | None = None
    #: Where other nodes connect to; a node by itself has none.
    peer_listen: Address | None = None
    #: What other nodes are told; None for the address that the node listens on.
    peer_advertised: Address | None = None
    #: Holds the secret that nodes prove to each other to know: the same on all of them, and for their owner alone.
    cluster_secret_file: str | None = None
    #: This node's key and certificate, with its id, for TLS between nodes; PEM, and for its owner alone.
    peer_certificate_file: str | None = None
    #: The authorities of the certificates of all nodes; PEM.
    peer_ca_file: str | None = None
    #: Whoever reaches the peer port is believed to be a node.
    peers_unauthenticated: bool = False
    #: The nodes that form the quorum when the cluster starts for the first time, and where they listen for peers. Empty
    #: for a node by itself. A node that is not among them joins the cluster through them.
    voters: Mapping[NodeId, Address] = msgspec.field(default_factory=dict)
    #: Made at the first start of the cluster.
    first_user: FirstUser | None = None
    leader_placement: LeaderPlacement = LeaderPlacement.SPREAD
    stop_grace_ms: int = 5000
    #: Of the process that runs the node.
    log: LogSettings = LogSettings()
    audit: AuditSettings = AuditSettings()
    #: Broker configs by their Kafka names.
    configs: Mapping[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        for node_id in (self.node_id, *self.voters):
            if not 0 <= node_id <= MAX_NODE_ID:
                raise QuorateError(f"a node id is a number from 0 to {MAX_NODE_ID}, not {node_id}")
        if not self.data_dir:
            raise QuorateError("data_dir must name a folder")
        for name, value in self.configs.items():
            try:
                find_broker_definition(name).parse(value)
            except KafkaError as error:
                raise QuorateError(f"[configs] {error}") from None
        self._check_listeners()
        if self.peer_listen is not None:
            _check_reachable("peer_listen", self.peer_listen, "peer_advertised", self.peer_advertised, "other nodes")
            self._check_authentication()
        self._check_quorum()

    def _check_listeners(self) -> None:
        if "listeners" not in self.configs:
            _check_reachable("listen", self.listen, "advertised", self.advertised, "clients")
        first = self.listeners.all[0]
        if (first.address, first.advertised) != (self.listen, self.advertised or self.listen):
            raise QuorateError(f"listen and listeners name two addresses, {self.listen} and {first.address}")

    def _check_authentication(self) -> None:
        if (self.peer_certificate_file is None) is not (self.peer_ca_file is None):
            raise QuorateError("peer_certificate_file and peer_ca_file go together: name both or neither")
        proofs = [key for key in ("cluster_secret_file", "peer_certificate_file") if getattr(self, key) is not None]
        if not proofs and not self.peers_unauthenticated:
            raise QuorateError(
                "nodes that have a peer_listen need a cluster_secret_file, with the same 32 random characters or more "
                "on all of them (openssl rand -hex 32 > cluster.secret; chmod 600 cluster.secret), or for TLS a "
                "peer_certificate_file and a peer_ca_file, or both. Without that whoever "
                "reaches the peer port commands the cluster; where nobody else can, say peers_unauthenticated = true"
            )
        if proofs and self.peers_unauthenticated:
            raise QuorateError(f"name either a {proofs[0]} or peers_unauthenticated = true, not both")

    def _check_quorum(self) -> None:
        if not self.voters:
            return
        if self.cluster_id is None:
            raise QuorateError('nodes that have [voters] need a cluster_id = "name", the same on all of them')
        if self.peer_listen is None:
            raise QuorateError(
                'nodes that have [voters] need a peer_listen = "host:port", where other nodes connect to'
            )
        own = self.voters.get(self.node_id)
        reached_at = self.peer_advertised or self.peer_listen
        if own is not None and own != reached_at:
            raise QuorateError(
                f"[voters] says that this node listens for peers on {own}, but it is {reached_at}: "
                "peer_listen (or peer_advertised) must be the same"
            )

    @property
    def listeners(self) -> Listeners:
        """Where clients connect to. One that is only an address is the listener PLAINTEXT."""
        if "listeners" in self.configs:
            return parse_listeners(self.configs)
        advertised = (
            {} if self.advertised is None else {"advertised.listeners": f"{DEFAULT_LISTENER}://{self.advertised}"}
        )
        return parse_listeners({**self.configs, "listeners": f"{DEFAULT_LISTENER}://{self.listen}", **advertised})

    @property
    def quorum(self) -> QuorumConfig:
        return QuorumConfig(
            node_id=self.node_id,
            peer_listen=self.peer_listen,
            peer_advertised=self.peer_advertised,
            voters=self.voters,
        )

    def broker_view(self) -> BrokerView:
        """Who this node is and what its file says, for resolving configs; addresses and folders described too."""
        described = {
            "node.id": str(self.node_id),
            "broker.id": str(self.node_id),
            "log.dirs": self.data_dir,
            "listeners": ",".join(f"{each.name}://{each.address}" for each in self.listeners.all),
            "advertised.listeners": ",".join(f"{each.name}://{each.advertised}" for each in self.listeners.all),
        }
        if self.rack is not None:
            described["broker.rack"] = self.rack
        return BrokerView(node_id=self.node_id, static_configs={**self.configs, **described})


_ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})
_KEYS = NodeConfig.__struct_fields__
_ADDRESS_KEYS = ("listen", "advertised", "peer_listen", "peer_advertised")


def _check_reachable(key: str, listen: Address, advertised_key: str, advertised: Address | None, who: str) -> None:
    if listen.host in _ANY_ADDRESS and advertised is None:
        raise QuorateError(
            f"{key} = {str(listen)!r} is no address that {who} can connect to: "
            f'name one with {advertised_key} = "host:port"'
        )
    if advertised is not None and advertised.host in _ANY_ADDRESS:
        raise QuorateError(f"{advertised_key} = {str(advertised)!r} is no address that {who} can connect to")


def parse_node_config(text: str) -> NodeConfig:
    """The settings in a node's TOML file; a mistake is one sentence that says what to change."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise QuorateError(f"not valid TOML: {error}") from None
    configs = {name: _config_text(name, value) for name, value in raw.pop("configs", {}).items()}
    for name in [key for key in raw if key == "listeners" or "." in key]:
        if name in configs:
            raise QuorateError(f"{name!r} stands at the top and in [configs]")
        configs[name] = _config_text(name, raw.pop(name))
    if "listeners" in configs:
        _take_first_listener(raw, configs)
    for key in raw:
        if key not in _KEYS and isinstance(raw[key], dict):
            raise _needs_quotes(key, raw[key])
        if key not in _KEYS:
            near = get_close_matches(key, _KEYS, n=1)
            raise QuorateError(f"unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    for key in ("node_id", "data_dir", "listen"):
        if key not in raw:
            raise QuorateError(f"the key {key!r} is missing")
    for key in _ADDRESS_KEYS:
        if key in raw:
            raw[key] = parse_address(_text_of(key, raw[key]))
    check_choices(raw, NodeConfig)
    raw["first_user"] = parse_first_user(raw.get("first_user"))
    raw["log"] = log = parse_log_settings(raw.get("log", {}))
    raw["audit"] = parse_audit_settings(raw.get("audit", {}), log)
    raw["voters"] = _parse_voters(raw.get("voters", {}))
    raw["configs"] = configs
    try:
        return convert(raw, NodeConfig)
    except msgspec.ValidationError as error:
        raise QuorateError(str(error)) from None


def _take_first_listener(raw: dict[str, Any], configs: Mapping[str, str]) -> None:
    for key in ("listen", "advertised"):
        if key in raw:
            raise QuorateError(f"name either listeners or {key}, not both")
    first = parse_listeners(configs).all[0]
    raw["listen"], raw["advertised"] = str(first.address), str(first.advertised)


def _parse_voters(raw: Any) -> dict[NodeId, Address]:
    if not isinstance(raw, dict):
        raise QuorateError('[voters] is a table of node ids and addresses, such as 1 = "127.0.0.1:29092"')
    voters = {}
    for key, value in raw.items():
        if not key.isdigit():
            raise QuorateError(f"[voters] {key!r} is not a node id")
        voters[NodeId(int(key))] = parse_address(_text_of(f"[voters] {key}", value))
    return voters


def _text_of(key: str, value: Any) -> str:
    if isinstance(value, dict):
        raise _needs_quotes(key, value)
    if not isinstance(value, str):
        raise QuorateError(f'{key} must be a text such as "127.0.0.1:9092"')
    return value


def _config_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        raise _needs_quotes(name, value)
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def _needs_quotes(name: str, value: Mapping[str, Any]) -> QuorateError:
    return QuorateError(f'names of configs hold dots, so they go in quotes: "{name}.{next(iter(value), "")}" = …')
