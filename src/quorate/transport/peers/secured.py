"""The TLS of a connection between two nodes, from its first byte until the connection may begin as one without it does.

A handshake counts as a connection of a stranger: whoever owns it hears of it when it begins.
"""

import asyncio
import ssl
from typing import Final, Protocol

from quorate.security.peer_tls import PeerCertificate, PeerTls
from quorate.transport.peers.hello import Rejection, RejectReason
from quorate.transport.peers.local import LocalPeer
from quorate.transport.peers.stream import PeerStream
from quorate.transport.tls_layer import CLOSED_EARLY, OUT_OF_TIME, TlsLayer

_PROBLEMS: Final = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS: every node needs a peer_certificate_file and a peer_ca_file",
    "UNSUPPORTED_PROTOCOL": "it does not speak TLS 1.3, as nodes do",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it does not speak TLS 1.3, as nodes do",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it asks for a certificate, and was shown none",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the authority of this node's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept this node's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept this node's certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it does not accept this node's certificate for this purpose",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this node's certificate has expired, it says",
}
#: An alert that a node without TLS knows when it sees it: protocol_version.
_SPEAK_TLS: Final = b"\x15\x03\x03\x00\x02\x02\x46"
ENDED_IN_TLS: Final = Rejection(
    reason=RejectReason.TLS_FAILED,
    message="the other end has ended the connection in the handshake of TLS: it has no peer_certificate_file, "
    "or does not accept the certificate of this node",
)


class HandshakeOwner(Protocol):
    def handshake_begun(self, layer: "PeerTlsLayer") -> None: ...

    def handshake_failed(self, rejection: Rejection | None) -> None:
        """There is no connection. None where there is nothing to tell: the other end was silent, or has left."""
        ...


class _Nobody:
    """Owns a connection that has ended."""

    def handshake_begun(self, layer: "PeerTlsLayer") -> None: ...

    def handshake_failed(self, rejection: Rejection | None) -> None: ...


_NOBODY: Final = _Nobody()
_NOTHING_INSIDE: Final = asyncio.BufferedProtocol()


class PeerTlsLayer(TlsLayer):
    def __init__(
        self, local: LocalPeer, tls: PeerTls, stream: PeerStream, owner: HandshakeOwner, *, is_dialler: bool
    ) -> None:
        super().__init__(
            stream,
            tls.dialling if is_dialler else tls.listening,
            local.encrypted,
            timeout_s=local.config.connect_timeout_ms / 1000,
            on_handshake_ended=self._handshake_ended,
            is_client=is_dialler,
        )
        self._peer_tls = tls
        self._owner: HandshakeOwner = owner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._owner.handshake_begun(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # It knows those who know it: without these circles all are freed at once.
        self._on_handshake_ended, self._inside, self._owner = _told_before, _NOTHING_INSIDE, _NOBODY

    @property
    def remote_host(self) -> str:
        remote = self.get_extra_info("peername")
        return str(remote[0]) if remote else ""

    def certificate(self) -> PeerCertificate:
        """What the other end has shown in the handshake."""
        connection: ssl.SSLObject = self.get_extra_info("ssl_object")
        shown = self._peer_tls.shown_to_dialler if self._is_client else self._peer_tls.shown_to_listener
        return shown(connection)

    def _refuse(self, error: Exception) -> None:
        if _reason(error) == "WRONG_VERSION_NUMBER" and not self._is_client:
            self._plain.write(_SPEAK_TLS)  # OpenSSL does not tell.
        super()._refuse(error)

    def _explain(self, error: Exception) -> str:
        return _PROBLEMS.get(_reason(error)) or super()._explain(error)

    def _handshake_ended(self, reason: str | None) -> None:
        if reason in (CLOSED_EARLY, OUT_OF_TIME):
            self._owner.handshake_failed(ENDED_IN_TLS if self._is_client else None)
        elif reason is not None:
            self._owner.handshake_failed(tls_failed(reason))


def _told_before(reason: str | None) -> None: ...


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None))


def tls_failed(reason: str) -> Rejection:
    return Rejection(reason=RejectReason.TLS_FAILED, message=reason)
