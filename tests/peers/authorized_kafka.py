"""Apache Kafka with its own authorizer: a plain listener for its administrator, SASL_SSL for everybody else."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from tests.peers.apache_kafka import ApacheKafka, ApacheKafkaNode
from tests.peers.child_process import free_port
from tests.peers.secured_node import Authority
from tests.peers.secured_users import AUTHORIZER, SCRAM_LOGIN

NODE_IDS = (4001,)


class AuthorizedKafka(ApacheKafka):
    """Start it with ``launch``. The administrator is at ``bootstrap``, users are at ``secured``."""

    ca: ClassVar[Path]
    _key_store: ClassVar[Path]
    _ports: ClassVar[dict[int, int]]

    @classmethod
    def launch(cls, folder: Path, node_ids: Sequence[int] = NODE_IDS, configs: Mapping[str, str] | None = None) -> Self:
        authority = Authority(folder)
        cls.ca = authority.certificate
        cls._key_store = authority.issue("node", "127.0.0.1")
        cls._ports = {node_id: free_port() for node_id in node_ids}
        return cls.start(node_ids=node_ids, overrides=configs, heap_mb=384)

    @property
    def secured(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def _settings(self, node: ApacheKafkaNode) -> dict[str, str]:
        settings = super()._settings(node)
        for key in ("listeners", "advertised.listeners"):
            settings[key] += f",SECURED://127.0.0.1:{self._ports[node.node_id]}"
        settings["listener.security.protocol.map"] += ",SECURED:SASL_SSL"
        return settings | {
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._key_store),
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.secured.scram-sha-256.sasl.jaas.config": f"{SCRAM_LOGIN} required;",
            "listener.name.secured.scram-sha-512.sasl.jaas.config": f"{SCRAM_LOGIN} required;",
        }
