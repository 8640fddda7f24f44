"""Apache Kafka with every kind of listener that the client knows, a rack for each node and ids that are no indexes."""

from pathlib import Path
from typing import ClassVar, Self

from tests.kafka.certificates import Certificates
from tests.peers.apache_kafka import ApacheKafka, ApacheKafkaNode
from tests.peers.child_process import free_port
from tests.peers.kafka_tools import ToolShell

NODE_IDS = (7, 100, 4001)
USERNAME = "alice"
PASSWORD = "alice's secret"
LISTENERS = {
    "SSL": "SSL",
    "MTLS": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    # Asks for another login every two seconds.
    "RELOGIN": "SASL_PLAINTEXT",
    # Brokers send clients of this one to where a test may have put a proxy.
    "PROXIED": "PLAINTEXT",
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
#: Tokens without a signature are taken from everybody: whoever logs in says who it is.
TOKEN_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"


class SecuredKafka(ApacheKafka):
    """Start it with ``launch``. Plain text is at ``bootstrap``, the others at ``listener(name)``."""

    certificates: ClassVar[Certificates]
    _ports: ClassVar[dict[tuple[int, str], int]] = {}

    @classmethod
    def launch(cls, folder: Path) -> Self:
        cls.certificates = Certificates(folder)
        return cls.start(
            node_ids=NODE_IDS,
            # A killed broker is let in again only after its old session ends.
            overrides={
                "broker.session.timeout.ms": "3000",
                "broker.heartbeat.interval.ms": "500",
                # Tests wait for the log cleaner, which would look every 15 s and take a third of the heap.
                "log.cleaner.backoff.ms": "500",
                "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
                # Tests write records of long ago, and the broker looks for those every five minutes.
                "log.retention.ms": "-1",
            },
            heap_mb=384,
        )

    def listener(self, name: str) -> tuple[str, ...]:
        return tuple(f"127.0.0.1:{self.port(node_id, name)}" for node_id in NODE_IDS)

    def proxy_port(self, node_id: int) -> int:
        """Where the broker says that its listener ``PROXIED`` is."""
        return self.port(node_id, "PROXY")

    def add_scram_credentials(self, tool_shell: ToolShell) -> None:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            tool_shell.run(
                "kafka-configs",
                *("--bootstrap-server", self.nodes[NODE_IDS[0]].bootstrap, "--alter", "--entity-type", "users"),
                *("--entity-name", USERNAME, "--add-config", f"{mechanism}=[iterations=8192,password={PASSWORD}]"),
            )

    def port(self, node_id: int, listener: str) -> int:
        return self._ports.setdefault((node_id, listener), free_port())

    def _settings(self, node: ApacheKafkaNode) -> dict[str, str]:
        addresses = {name: f"{name}://127.0.0.1:{self.port(node.node_id, name)}" for name in LISTENERS}
        settings = super()._settings(node)
        settings["listeners"] = ",".join([settings["listeners"], *addresses.values()])
        addresses["PROXIED"] = f"PROXIED://127.0.0.1:{self.proxy_port(node.node_id)}"
        settings["advertised.listeners"] = ",".join([settings["advertised.listeners"], *addresses.values()])
        settings["listener.security.protocol.map"] += "," + ",".join(
            f"{name}:{protocol}" for name, protocol in LISTENERS.items()
        )
        settings |= {
            "broker.rack": f"rack-{node.node_id}",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates.server_store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
            "listener.name.mtls.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
            **{f"listener.name.relogin.{name.lower()}.connections.max.reauth.ms": "2000" for name in MECHANISMS},
        }
        for listener in ("sasl_plaintext", "sasl_ssl", "relogin"):
            prefix = f"listener.name.{listener}"
            settings[f"{prefix}.plain.sasl.jaas.config"] = f'{PLAIN_LOGIN} required user_{USERNAME}="{PASSWORD}";'
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                settings[f"{prefix}.{mechanism}.sasl.jaas.config"] = f"{SCRAM_LOGIN} required;"
            settings[f"{prefix}.oauthbearer.sasl.jaas.config"] = f"{TOKEN_LOGIN} required;"
        return settings
