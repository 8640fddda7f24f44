"""The two nodes that are compared: the same listeners, users, keys and rules on Quorate and on Apache Kafka."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final, Protocol, Self

from tests.compat.raw_connection import RawConnection
from tests.compat.security_matrix.names import ADMIN, password_of
from tests.peers.apache_kafka import ApacheKafka, ApacheKafkaNode
from tests.peers.child_process import free_port
from tests.peers.jars import QUICK_START_OPTIONS
from tests.peers.quorate_node import QuorateNode
from tests.unit.security.tokens import RSA_KEY, jwk, key_set, sign

NODE_ID: Final = 7
#: Nobody logs in at the first. Logins at the last one end after a while.
LISTENERS: Final = {"PLAINTEXT": "PLAINTEXT", "SASL_PLAINTEXT": "SASL_PLAINTEXT", "RENEWED": "SASL_PLAINTEXT"}
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
RENEWED_EVERY_MS: Final = 3_000
ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "cluster"
_HOUR_MS: Final = 3_600_000
_LOGINS: Final = "org.apache.kafka.common.security"
_INTERNAL: Final = "INTERNAL"


class Target(Protocol):
    """A node with a listener of each name."""

    def address(self, listener: str) -> str: ...


def connect(target: Target, listener: str, host: str = "127.0.0.1") -> RawConnection:
    """``host`` is where the connection comes from."""
    return RawConnection(target.address(listener), source=host)


def access_token(name: str, lifetime_s: float = 3600) -> str:
    now_s = int(time.time())
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": name,
        "iat": now_s - 7200,
        "exp": now_s + lifetime_s,
        "scope": "kafka",
    }
    return sign(RSA_KEY, "RS256", claims, kid="first")


def _settings(key_set_path: Path, users: Sequence[str], *, authorizes: bool) -> dict[str, str]:
    """What both read, by Apache Kafka's names."""
    passwords = " ".join(f'user_{user}="{password_of(user)}"' for user in users)
    settings = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{key_set_path}",
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.clock.skew.seconds": "0",
        "connection.failed.authentication.delay.ms": "0",
        "delegation.token.secret.key": "the key of tokens",
        "auto.create.topics.enable": "true",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        # Members and transactions stay as they are for as long as the matrix takes.
        "group.consumer.max.session.timeout.ms": str(_HOUR_MS),
        "group.consumer.session.timeout.ms": str(_HOUR_MS),
        "transaction.max.timeout.ms": str(_HOUR_MS),
    }
    for listener in ("sasl_plaintext", "renewed"):
        settings[f"listener.name.{listener}.plain.sasl.jaas.config"] = (
            f"{_LOGINS}.plain.PlainLoginModule required {passwords};"
        )
    for mechanism in MECHANISMS:
        settings[f"listener.name.renewed.{mechanism.lower()}.connections.max.reauth.ms"] = str(RENEWED_EVERY_MS)
    if authorizes:
        settings["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        settings["super.users"] = f"User:{ADMIN};User:broker"
    return settings


def _write_keys(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "keys.json"
    path.write_text(key_set(jwk(RSA_KEY, kid="first", alg="RS256", use="sig")))
    return path


class MatrixQuorate(QuorateNode):
    def __init__(self, folder: Path, users: Sequence[str], *, authorizes: bool) -> None:
        self._ports = {name: free_port() for name in LISTENERS}
        configs = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in LISTENERS.items()),
            **_settings(_write_keys(folder), users, authorizes=authorizes),
        }
        super().__init__(folder, node_id=NODE_ID, settings={}, configs=configs)

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self._ports[listener]}"


class MatrixKafka(ApacheKafka):
    _ports: ClassVar[Mapping[str, int]]
    _overrides: ClassVar[Mapping[str, str]]

    @classmethod
    def launch(cls, folder: Path, users: Sequence[str], *, authorizes: bool) -> Self:
        keys = _write_keys(folder)
        cls._ports = {name: free_port() for name in (*LISTENERS, _INTERNAL)}
        cls._overrides = _settings(keys, users, authorizes=authorizes)
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{keys}"
        return cls.start(node_ids=(NODE_ID,), heap_mb=384, jvm_options=(*QUICK_START_OPTIONS, allowed))

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self._ports[listener]}"

    def _settings(self, node: ApacheKafkaNode) -> dict[str, str]:
        settings = super()._settings(node) | dict(self._overrides)
        addresses = [f"{name}://127.0.0.1:{port}" for name, port in self._ports.items()]
        settings["listeners"] = ",".join([*addresses, f"CONTROLLER://127.0.0.1:{node.controller_port}"])
        settings["advertised.listeners"] = ",".join(addresses)
        protocols = {**LISTENERS, _INTERNAL: "SASL_PLAINTEXT", "CONTROLLER": "SASL_PLAINTEXT"}
        settings["listener.security.protocol.map"] = ",".join(f"{name}:{each}" for name, each in protocols.items())
        settings["inter.broker.listener.name"] = _INTERNAL
        # The broker has to be somebody to its own controller.
        for kind in ("inter.broker", "controller"):
            settings[f"sasl.mechanism.{kind}.protocol"] = "PLAIN"
        for listener in ("internal", "controller"):
            settings[f"listener.name.{listener}.sasl.enabled.mechanisms"] = "PLAIN"
            settings[f"listener.name.{listener}.plain.sasl.jaas.config"] = (
                f'{_LOGINS}.plain.PlainLoginModule required username="broker" password="broker" user_broker="broker";'
            )
        bearer = f"{_LOGINS}.oauthbearer"
        for listener in ("sasl_plaintext", "renewed"):
            prefix = f"listener.name.{listener}"
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                settings[f"{prefix}.{mechanism}.sasl.jaas.config"] = f"{_LOGINS}.scram.ScramLoginModule required;"
            settings[f"{prefix}.oauthbearer.sasl.jaas.config"] = f"{bearer}.OAuthBearerLoginModule required;"
            settings[f"{prefix}.oauthbearer.sasl.server.callback.handler.class"] = (
                f"{bearer}.OAuthBearerValidatorCallbackHandler"
            )
        return settings


@contextmanager
def running(kind: str, folder: Path, users: Sequence[str], *, authorizes: bool) -> Iterator[Target]:
    if kind == "quorate":
        with MatrixQuorate(folder, users, authorizes=authorizes) as node:
            node.restart()
            yield node
    else:
        with MatrixKafka.launch(folder, users, authorizes=authorizes) as kafka:
            yield kafka
