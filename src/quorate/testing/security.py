"""What makes a cluster for tests a secured one: the protocol of its listener, its files, and its first user.

And how clients connect to it, or to one without any of that, in the words of each of them.
"""

import ssl
from collections.abc import Sequence
from pathlib import Path
from secrets import token_bytes
from typing import Any, Final, Literal, assert_never, get_args

from quorate.broker.first_user import FirstUser, new_credentials
from quorate.broker.secured_folder import ADMIN, CLIENT_MECHANISM, ClientAccess, SecuredFolder, listener_configs
from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.metadata.core.security_commands import SetScramCredential
from quorate.security.listeners import SecurityProtocol
from quorate.security.scram_credentials import (
    SALT_SEED_BYTES,
    ScramMechanism,
    check_new_password,
    check_new_user_name,
)

Secured = Literal["SSL", "SASL_PLAINTEXT", "SASL_SSL"]
_PROTOCOLS: Final = get_args(Secured)
_HOSTS: Final = ("127.0.0.1", "localhost", "::1")
#: PLAIN too, which checks the same users: no password of a test is worth a secret.
_MECHANISMS: Final = "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN"
_SCRAM: Final = (ScramMechanism.SCRAM_SHA_512, ScramMechanism.SCRAM_SHA_256)
Library = Literal["java", "librdkafka", "kafka-python", "aiokafka"]
_LIBRARIES: Final = get_args(Library)


class InProcessSecurity:
    """Prepared before the nodes are started."""

    files: SecuredFolder

    def __init__(self, wanted: Literal[True] | Secured) -> None:
        if wanted is not True and wanted not in _PROTOCOLS:
            raise QuorateError(f"secured={wanted!r} is not True, False or one of {', '.join(_PROTOCOLS)}")
        self.protocol = SecurityProtocol.SASL_SSL if wanted is True else SecurityProtocol(wanted)
        self.username = ADMIN
        self.password = ""

    def prepare(self, folder: Path, node_ids: Sequence[NodeId], bootstrap_servers: str) -> None:
        self.files = SecuredFolder(folder)
        if self.protocol.uses_tls:
            self.files.check_certificates(node_ids)
            list(self.files.make_certificates(node_ids, _HOSTS))
        if self.protocol.uses_sasl:
            self.password = self.files.settle_password()
        elif self.protocol.uses_tls:
            self.files.make_client_certificate(self.username)
        self.files.write_client_properties(self.access(bootstrap_servers), "Of a cluster for tests.")

    @property
    def first_user(self) -> FirstUser | None:
        if not self.protocol.uses_sasl:
            return None
        return FirstUser(name=self.username, password_file=str(self.files.password_file))

    def peer_certificate_of(self, node_id: NodeId) -> str | None:
        return str(self.files.peer_certificate_of(node_id)) if self.protocol.uses_tls else None

    @property
    def peer_ca_file(self) -> str | None:
        return str(self.files.ca_file) if self.protocol.uses_tls else None

    @property
    def ca_file(self) -> Path:
        if not self.protocol.uses_tls:
            raise QuorateError(f"there is no authority where there is no TLS: {self.protocol}")
        return self.files.ca_file

    @property
    def client_certificate(self) -> Path:
        if self.protocol is not SecurityProtocol.SSL:
            raise QuorateError(f"clients show no certificates where they log in: {self.protocol}")
        return self.files.client_certificate

    def configs(self, node_id: NodeId, listen: Address) -> dict[str, str]:
        configs = listener_configs(self.protocol, listen, self.files, node_id, self.username)
        return configs | ({"sasl.enabled.mechanisms": _MECHANISMS} if self.protocol.uses_sasl else {})

    def access(self, bootstrap_servers: str, username: str | None = None, password: str | None = None) -> ClientAccess:
        """Of another user than the first one, if ``username`` is named."""
        if (username is None) != (password is None):
            raise QuorateError("a user is named with a name and a password")
        return ClientAccess(
            bootstrap_servers=bootstrap_servers,
            protocol=self.protocol,
            username=self.username if username is None else username,
            password=self.password if password is None else password,
            ca_file=self.files.ca_file,
            certificate_file=self.files.client_certificate if self.protocol is SecurityProtocol.SSL else None,
        )

    def check_user(self, name: str, password: str) -> None:
        if not self.protocol.uses_sasl:
            raise QuorateError("nobody logs in to a cluster with SSL alone: secured='SASL_SSL' has users")
        check_new_user_name(name)
        check_new_password(password)


def plaintext_access(bootstrap_servers: str) -> ClientAccess:
    return ClientAccess(
        bootstrap_servers=bootstrap_servers,
        protocol=SecurityProtocol.PLAINTEXT,
        username="",
        password="",
        ca_file=Path(),
    )


def set_user_commands(name: str, password: str) -> list[SetScramCredential]:
    """Takes milliseconds."""
    seeds = token_bytes(SALT_SEED_BYTES * len(_SCRAM))
    return [
        SetScramCredential(user=name, mechanism=new.mechanism, credential=new.credential)
        for new in new_credentials(_SCRAM, password, seeds)
    ]


def settings_of(library: Library, access: ClientAccess) -> dict[str, Any]:
    if library not in _LIBRARIES:
        raise QuorateError(f"{library!r} is not one of {', '.join(_LIBRARIES)}")
    match library:
        case "java":
            return dict(access.properties())
        case "librdkafka":
            return _librdkafka(access)
        case "kafka-python":
            return _kafka_python(access) | _python_files(access)
        case "aiokafka":
            return _kafka_python(access) | _python_context(access)
        case _:
            assert_never(library)


def _librdkafka(access: ClientAccess) -> dict[str, Any]:
    settings = {"bootstrap.servers": access.bootstrap_servers, "security.protocol": str(access.protocol)}
    if access.protocol.uses_sasl:
        settings |= {
            "sasl.mechanism": CLIENT_MECHANISM,
            "sasl.username": access.username,
            "sasl.password": access.password,
        }
    if access.protocol.uses_tls:
        settings["ssl.ca.location"] = str(access.ca_file)
        if access.certificate_file is not None:
            settings |= {
                "ssl.certificate.location": str(access.certificate_file),
                "ssl.key.location": str(access.certificate_file),
            }
    return settings


def _kafka_python(access: ClientAccess) -> dict[str, Any]:
    """What both have."""
    settings = {"bootstrap_servers": access.bootstrap_servers.split(","), "security_protocol": str(access.protocol)}
    if access.protocol.uses_sasl:
        settings |= {
            "sasl_mechanism": CLIENT_MECHANISM,
            "sasl_plain_username": access.username,
            "sasl_plain_password": access.password,
        }
    return settings


def _python_files(access: ClientAccess) -> dict[str, Any]:
    if not access.protocol.uses_tls:
        return {}
    own = None if access.certificate_file is None else str(access.certificate_file)
    return {"ssl_cafile": str(access.ca_file)} | ({} if own is None else {"ssl_certfile": own, "ssl_keyfile": own})


def _python_context(access: ClientAccess) -> dict[str, Any]:
    if not access.protocol.uses_tls:
        return {}
    context = ssl.create_default_context(cafile=str(access.ca_file))
    if access.certificate_file is not None:
        context.load_cert_chain(access.certificate_file)
    return {"ssl_context": context}
