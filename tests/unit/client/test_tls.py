"""TLS of the client: against a server on loopback, with certificates that fit and with those that do not."""

import datetime
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from quorate.client.config import ClientConfig
from quorate.client.connections.connection import ReceiveBuffers
from quorate.client.connections.pool import Connector
from quorate.client.errors import AuthenticationFailed, Disconnected
from quorate.client.retries import SystemMonotonicClock
from quorate.client.security_config import SecurityConfig
from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError
from quorate.security.certificates import Issued, Subject, issue, make_authority
from quorate.security.listeners import SecurityProtocol

NOW = datetime.datetime.now(datetime.UTC)
YESTERDAY = NOW - datetime.timedelta(days=1)
AUTHORITY = make_authority("authority", NOW)
OTHER_AUTHORITY = make_authority("other authority", NOW)
BROKER = issue(AUTHORITY, Subject(name="broker", hosts=("127.0.0.1",)), NOW)
ELSEWHERE = issue(AUTHORITY, Subject(name="broker", hosts=("other.example",)), NOW)
EXPIRED = issue(AUTHORITY, Subject(name="broker", hosts=("127.0.0.1",)), YESTERDAY - datetime.timedelta(days=2), days=2)
CLIENT = issue(AUTHORITY, Subject(name="client"), NOW)
ENCRYPTED_CLIENT = issue(AUTHORITY, Subject(name="client"), NOW, password="the key's own")


@contextmanager
def serving(tmp_path: Path, own: Issued, *, asks_for_certificate: bool = False) -> Iterator[tuple[Address, set[str]]]:
    """Handshakes and says nothing more; the names of clients' certificates come into the set."""
    (tmp_path / "server.pem").write_bytes(own.key_and_chain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    if asks_for_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=AUTHORITY.certificate.decode())
    names: set[str] = set()

    def serve() -> None:
        while True:
            try:
                connected, _ = listener.accept()
            except OSError:
                return
            with suppress(OSError), context.wrap_socket(connected, server_side=True) as secured:
                subject: Any = (secured.getpeercert() or {}).get("subject", ())
                names.update(value for ((_, value),) in subject)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield Address("127.0.0.1", listener.getsockname()[1]), names
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def connect(address: Address, **security: object) -> None:
    """The server ends the connection after the handshake: who gets that far is let in."""
    config = SecurityConfig(protocol=SecurityProtocol.SSL, **security)  # type: ignore[arg-type]
    connector = Connector(
        ClientConfig(bootstrap_servers=("a:1",), security=config), ReceiveBuffers(), SystemMonotonicClock()
    )
    with pytest.raises(Disconnected, match="lost the connection"):
        connector.open(address)


def trusted(**more: object) -> dict[str, object]:
    return {"ca_certificates": AUTHORITY.certificate.decode(), **more}


def test_a_broker_of_the_authority_is_believed(tmp_path: Path) -> None:
    with serving(tmp_path, BROKER) as (address, _):
        connect(address, **trusted())
        connect(address, **trusted(tls_versions="TLSv1.2", cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"))


@pytest.mark.parametrize(
    ("own", "authority", "reason"),
    [
        (BROKER, OTHER_AUTHORITY, "its certificate is refused"),
        (ELSEWHERE, AUTHORITY, "its certificate is refused: IP address mismatch"),
        (EXPIRED, AUTHORITY, "its certificate is refused: certificate has expired"),
    ],
)
def test_a_broker_that_cannot_be_believed_is_refused(
    tmp_path: Path, own: Issued, authority: Issued, reason: str
) -> None:
    with serving(tmp_path, own) as (address, _), pytest.raises(AuthenticationFailed, match=reason):
        connect(address, ca_certificates=authority.certificate.decode())


def test_the_host_name_is_not_checked_where_that_is_said(tmp_path: Path) -> None:
    with serving(tmp_path, ELSEWHERE) as (address, _):
        connect(address, **trusted(verify_hostname=False))


@pytest.mark.parametrize("how", ["one file", "two files", "texts", "encrypted"])
def test_the_client_shows_its_certificate(tmp_path: Path, how: str) -> None:
    both, chain, key = tmp_path / "both.pem", tmp_path / "chain.pem", tmp_path / "key.pem"
    both.write_bytes(CLIENT.key_and_chain)
    chain.write_bytes(ENCRYPTED_CLIENT.certificate if how == "encrypted" else CLIENT.certificate)
    key.write_bytes(ENCRYPTED_CLIENT.key if how == "encrypted" else CLIENT.key)
    settings: dict[str, dict[str, str]] = {
        "one file": {"certificate_location": str(both)},
        "two files": {"certificate_location": str(chain), "key_location": str(key)},
        "texts": {"certificate_chain": CLIENT.certificate.decode(), "private_key": CLIENT.key.decode()},
        "encrypted": {
            "certificate_location": str(chain),
            "key_location": str(key),
            "key_password": "the key's own",
        },
    }
    with serving(tmp_path, BROKER, asks_for_certificate=True) as (address, names):
        connect(address, **trusted(**settings[how]))

    assert names == {"client"}


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate")
    for security, sentence in (
        ({"ca_location": str(tmp_path / "none.pem")}, "security: ca_location: .*none.pem cannot be read: No such file"),
        ({"ca_location": str(nonsense)}, "security: ca_location: it has no certificates in PEM"),
        ({"certificate_location": str(nonsense)}, "security: certificate_location: it has not the private key"),
    ):
        with pytest.raises(QuorateError, match=sentence):
            connect(Address("127.0.0.1", 1), **security)


def test_a_file_that_has_changed_counts_for_new_connections(tmp_path: Path) -> None:
    """Once it has stayed the same from one connection to the next, so that half a file is none."""
    ca = tmp_path / "ca.pem"
    ca.write_bytes(OTHER_AUTHORITY.certificate)
    config = SecurityConfig(protocol=SecurityProtocol.SSL, ca_location=str(ca))
    connector = Connector(
        ClientConfig(bootstrap_servers=("a:1",), security=config), ReceiveBuffers(), SystemMonotonicClock()
    )
    with serving(tmp_path, BROKER) as (address, _):
        with pytest.raises(AuthenticationFailed):
            connector.open(address)
        (tmp_path / "new.pem").write_bytes(AUTHORITY.certificate)
        os.replace(tmp_path / "new.pem", ca)
        with pytest.raises(AuthenticationFailed):
            connector.open(address)
        with pytest.raises(Disconnected):
            connector.open(address)

        ca.write_text("nonsense")
        for _ in range(3):
            with pytest.raises(Disconnected):
                connector.open(address)
