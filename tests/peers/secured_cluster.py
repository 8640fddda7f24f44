"""A Quorate cluster with an authorizer: a plain listener for its administrator, SASL_SSL for everybody else."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.peers.child_process import free_port
from tests.peers.quorate_cluster import IDS, QuorateCluster
from tests.peers.quorate_node import TomlValue
from tests.peers.secured_node import Authority
from tests.peers.secured_users import AUTHORIZER


class SecuredCluster(QuorateCluster):
    """The administrator is at ``bootstrap`` and needs no login, users are at ``secured`` (see ``secured_users``)."""

    def __init__(
        self, folder: Path, node_ids: Sequence[int] = IDS, configs: Mapping[str, TomlValue] | None = None
    ) -> None:
        authority = Authority(folder)
        self.ca = authority.certificate
        self.secured_ports = {node_id: free_port() for node_id in node_ids}
        secured: dict[str, TomlValue] = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL",
            "ssl.keystore.location": str(authority.issue("node", "127.0.0.1")),
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS",
        }
        super().__init__(folder, node_ids, secured | dict(configs or {}))

    @property
    def secured(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.secured_ports.values())

    def _more_listeners(self, node_id: int) -> Mapping[str, int]:
        return {"SECURED": self.secured_ports[node_id]}
