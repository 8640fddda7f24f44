"""A Quorate node with a listener of each security protocol, and the authority that clients and node trust."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from quorate.security.certificates import Subject, issue, make_authority
from tests.peers.child_process import free_port
from tests.peers.quorate_node import QuorateNode, TomlValue
from tests.unit.security.tokens import RSA_KEY, PrivateKey, jwk, key_set, sign

#: Each listener by its name, and its protocol.
LISTENERS: Final = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "MTLS": "SSL",
    "ASKING": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    # Logins last for a second or two.
    "RENEWED": "SASL_PLAINTEXT",
    # PLAIN without passwords of its own: those of SCRAM users.
    "STORED": "SASL_SSL",
}
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USERNAME: Final = "alice"
PASSWORD: Final = 'alice\'s \\ secret, "quoted" ü'
ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "quorate"
RENEWED_EVERY_MS: Final = 1500
_PLAIN_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Authority:
    """Its files lie in the folder: ``<name>.pem``, and for each certificate a file with its key and chain."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._authority = make_authority(name, datetime.now(UTC))
        self.certificate = folder / f"{name}.pem"
        self.certificate.write_bytes(self._authority.certificate)

    def issue(self, name: str, *hosts: str, began_days_ago: int = 0) -> Path:
        """A certificate for a day."""
        began = datetime.now(UTC) - timedelta(days=began_days_ago)
        issued = issue(self._authority, Subject(name=name, hosts=hosts), began, days=1)
        path = self._folder / f"{name}.pem"
        path.write_bytes(issued.key_and_chain)
        return path


class SecuredNode(QuorateNode):
    def __init__(
        self,
        folder: Path,
        configs: Mapping[str, TomlValue] | None = None,
        settings: Mapping[str, TomlValue] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(folder)
        self.key_store = self.authority.issue("node", "127.0.0.1")
        self.key_set = folder / "keys.json"
        self.use_issuer_key(RSA_KEY, "first")
        self.ports = {name: free_port() for name in LISTENERS}
        super().__init__(
            folder,
            node_id=7,
            settings=settings or {},
            configs={
                "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
                "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in LISTENERS.items()),
                "ssl.keystore.location": str(self.key_store),
                "ssl.truststore.location": str(self.authority.certificate),
                "listener.name.mtls.ssl.client.auth": "required",
                "listener.name.asking.ssl.client.auth": "requested",
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                **{
                    f"listener.name.{name}.plain.sasl.jaas.config": f"{_PLAIN_LOGIN} required {_plain_users()};"
                    for name in ("sasl_plaintext", "sasl_ssl", "renewed")
                },
                "sasl.oauthbearer.jwks.endpoint.url": f"file://{self.key_set}",
                "sasl.oauthbearer.expected.issuer": ISSUER,
                "sasl.oauthbearer.expected.audience": AUDIENCE,
                "listener.name.renewed.connections.max.reauth.ms": RENEWED_EVERY_MS,
                "group.initial.rebalance.delay.ms": 0,
                "offsets.topic.num.partitions": 2,
                **(configs or {}),
            },
        )

    def use_issuer_key(self, key: PrivateKey, key_id: str) -> None:
        """What the issuer's document says from now on."""
        written = self.key_set.with_suffix(".new")
        written.write_text(key_set(jwk(key, kid=key_id)))
        written.rename(self.key_set)

    def add_scram_users(self) -> None:
        """Alice, in both mechanisms."""
        add_scram_user(AdminClient({"bootstrap.servers": self.address("PLAINTEXT")}), USERNAME)

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"


def add_scram_user(admin: AdminClient, name: str) -> None:
    """In both mechanisms, with the password of all users here."""
    changes = [
        UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    ]
    for change in changes:
        admin.alter_user_scram_credentials([change])[name].result(30)


def _plain_users() -> str:
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    return f'user_{USERNAME}="{quoted}"'


def access_token(
    name: str = USERNAME,
    *,
    key: PrivateKey = RSA_KEY,
    key_id: str = "first",
    lifetime_s: float = 3600,
    audience: str = AUDIENCE,
) -> str:
    now_s = time.time()
    claims = {
        "iss": ISSUER,
        "aud": audience,
        "sub": name,
        "iat": now_s,
        "exp": now_s + lifetime_s,
        "scope": "kafka",
    }
    return sign(key, "RS256", claims, kid=key_id)
