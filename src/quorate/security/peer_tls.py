"""TLS between nodes: what a node shows, whose certificates it accepts, and what the other end has shown.

Both ends show a certificate of an authority that both trust. The id of its node is in it; which host that node is on
does not matter. Nothing is resumed: each connection is judged anew.
"""

import hashlib
import re
import ssl
from typing import Final, cast

import msgspec

from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.security.certificates import node_of_certificate
from quorate.security.peer_handshake import ClusterSecrets
from quorate.security.tls import TlsMaterial, client_context, server_context
from quorate.security.tls_settings import ClientAuth, PemSource, TlsSettings, TlsVersion

CERTIFICATE_KEY: Final = "peer_certificate_file"
AUTHORITY_KEY: Final = "peer_ca_file"
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_ENCRYPTED: Final = re.compile(rb"^(-----BEGIN ENCRYPTED|Proc-Type: 4,ENCRYPTED)", re.MULTILINE)
_DER: Final = 2  # ``_ssl.ENCODING_DER``
_MAX_STEPS: Final = 10


class PeerCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """What the other end has shown, and TLS has verified."""

    #: None where it names no node: it may be a client's.
    node_id: NodeId | None
    #: What the chain of certificates ends in.
    authority: bytes
    #: The same at both ends of this connection, and no other: which certificate the listening end has shown.
    channel: bytes


class Validity(msgspec.Struct, frozen=True, kw_only=True):
    """Of a certificate, in seconds since the Unix epoch."""

    from_s: int
    until_s: int


class PeerTls:
    """The certificate of one node and the authorities of all, as its files were at one moment."""

    def __init__(self, certificate: bytes, authorities: bytes, node_id: NodeId) -> None:
        """``QuorateError`` says why they cannot be used: what others would refuse is refused here."""
        if _ENCRYPTED.search(certificate) is not None:
            raise QuorateError(f"{CERTIFICATE_KEY}: its key is encrypted; nodes take one that is not")
        material = TlsMaterial(chain=certificate, key=None, trust=authorities)
        self.listening = server_context(_SETTINGS, material)
        self.listening.num_tickets = 0
        self.dialling = client_context(_SETTINGS, material, verify_hostname=False)
        self._authorities = frozenset(
            _digest(ssl.PEM_cert_to_DER_cert(each.decode())) for each in _CERTIFICATE.findall(authorities)
        )
        connection = self._show_to_itself()
        own = self.shown_to_dialler(connection)
        if own.node_id != node_id:
            found = "names no node" if own.node_id is None else f"is of node {own.node_id}"
            raise QuorateError(
                f"{CERTIFICATE_KEY}: the certificate {found}, this is node {node_id}: "
                f"quorate tls issue --node-id {node_id} makes one"
            )
        if not self.uphold(own):
            raise QuorateError(f"{AUTHORITY_KEY}: the authority of {CERTIFICATE_KEY} is not in it")
        self._channel = own.channel
        #: Of this node's certificate.
        self.validity = _validity(connection)

    def __repr__(self) -> str:
        return f"PeerTls({len(self._authorities)} authorities)"

    def uphold(self, certificate: PeerCertificate) -> bool:
        """Whether what the other end has shown once would be accepted by the authorities that count now."""
        return certificate.authority in self._authorities

    def shown_to_listener(self, connection: ssl.SSLObject) -> PeerCertificate:
        return _shown(connection, self._channel)

    def shown_to_dialler(self, connection: ssl.SSLObject) -> PeerCertificate:
        return _shown(connection, _digest(connection.getpeercert(binary_form=True) or b""))

    def _show_to_itself(self) -> ssl.SSLObject:
        """A handshake with itself: both ends verify as others will."""
        to_dialler, to_listener = ssl.MemoryBIO(), ssl.MemoryBIO()
        dialler = self.dialling.wrap_bio(to_dialler, to_listener)
        listener = self.listening.wrap_bio(to_listener, to_dialler, server_side=True)
        waiting = [dialler, listener]
        for _ in range(_MAX_STEPS):
            for end in tuple(waiting):
                if _has_finished(end):
                    waiting.remove(end)
        assert not waiting
        return dialler


class PeerCredentials(msgspec.Struct, frozen=True):
    """What a node shows to others, and asks of them. Without anything whoever connects is believed."""

    secrets: ClusterSecrets | None = None
    tls: PeerTls | None = None


_SETTINGS: Final = TlsSettings(
    chain=PemSource(setting=CERTIFICATE_KEY),
    trust=PemSource(setting=AUTHORITY_KEY),
    client_auth=ClientAuth.REQUIRED,
    versions=frozenset({TlsVersion.TLS_1_3}),
)


def _has_finished(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    except ssl.SSLCertVerificationError as error:
        raise QuorateError(
            f"{CERTIFICATE_KEY}: the certificate is not one that nodes accept by their {AUTHORITY_KEY}: "
            f"{error.verify_message}"
        ) from None
    except ssl.SSLError as error:
        raise QuorateError(f"{CERTIFICATE_KEY}: no handshake can be made with it: {error.reason}") from None
    return True


def _shown(connection: ssl.SSLObject, channel: bytes) -> PeerCertificate:
    return PeerCertificate(
        node_id=node_of_certificate(connection.getpeercert() or {}),
        authority=_digest(_verified_chain(connection)[-1]),
        channel=channel,
    )


def _validity(connection: ssl.SSLObject) -> Validity:
    shown = connection.getpeercert() or {}
    first, last = (ssl.cert_time_to_seconds(str(shown[key])) for key in ("notBefore", "notAfter"))
    return Validity(from_s=first, until_s=last)


def _verified_chain(connection: ssl.SSLObject) -> list[bytes]:
    """In DER, what was shown first. Public from Python 3.13 on; before that it is there by another name."""
    if hasattr(connection, "get_verified_chain"):
        return cast(list[bytes], connection.get_verified_chain())
    chain = connection._sslobj.get_verified_chain()  # type: ignore[attr-defined]
    return [certificate.public_bytes(_DER) for certificate in chain]


def _digest(certificate: bytes) -> bytes:
    return hashlib.sha256(certificate).digest()
