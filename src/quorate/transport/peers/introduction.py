"""How a connection between nodes begins, seen from either end: the handshake where there is a secret, then the hellos.

==============  ======================================  ===================================================
the dialler     the other end                           what it knows then
==============  ======================================  ===================================================
(TLS)           (TLS)                                   where there are certificates: which node each end is
opening                                                 nothing
                answer                                  nothing: a random number
proof                                                   the other end: that a node has dialled, and which one
                proof                                   the dialler: that it has reached the node that it meant
hello           hello, or a rejection                   cluster, data folder, incarnation
==============  ======================================  ===================================================

Until a stranger has proven something, it is told nothing but that it has to; where there are certificates it is TLS
that tells it. Nothing is said to an end whose certificate is not that of the node that was meant. An ``Introduction``
is given the frames of the other end, and says what to send or what has come of it.
"""

from collections.abc import Sequence
from typing import Final

from quorate.kernel.ids import NodeId
from quorate.kernel.ports import Buffer
from quorate.security.peer_handshake import DialingPeer, ListeningPeer, PeerRefused, ProvenPeer
from quorate.security.peer_tls import PeerCertificate
from quorate.transport.peers.errors import PeerProtocolError
from quorate.transport.peers.frames import FrameKind, encode_frame
from quorate.transport.peers.hello import (
    Hello,
    Rejection,
    RejectReason,
    decode_hello,
    decode_rejection,
    encode_hello,
)
from quorate.transport.peers.local import LocalPeer

Frame = Sequence[Buffer]

_SAME_FILE: Final = "every node needs a cluster_secret_file, with the same content"
_NOTHING_PROVEN: Final = Rejection(
    reason=RejectReason.UNAUTHENTICATED,
    message=f"who dials a node of this cluster proves first that it knows the cluster's secret: {_SAME_FILE}",
)
_NO_SECRET: Final = Rejection(
    reason=RejectReason.UNAUTHENTICATED,
    message=f"one end proves that it knows a cluster's secret, the other one has none: {_SAME_FILE}",
)
ENDED_IN_HANDSHAKE: Final = Rejection(
    reason=RejectReason.NOT_PROVEN,
    message="the other end has ended the connection in the handshake: it knows another secret, "
    f"or is of a version that knows none; {_SAME_FILE}",
)


class DiallerIntroduction:
    def __init__(self, local: LocalPeer, peer_id: NodeId, certificate: PeerCertificate | None = None) -> None:
        """With the certificate that the other end has shown, where there is TLS."""
        self._local = local
        self._peer_id = peer_id
        self._certificate = certificate
        self._handshake: DialingPeer | None = None
        secrets = local.credentials.secrets
        if secrets is not None:
            own, channel = local.identity.node_id, _channel(certificate)
            self._handshake = DialingPeer(secrets, own, peer_id, local.new_nonce(), channel)
        self._proven: ProvenPeer | None = None
        self._hello: Hello | None = None

    @property
    def is_proven(self) -> bool:
        """Whether the other end is the node that was meant, as far as this one asks for a proof."""
        return self._handshake is None or self._proven is not None

    def opening(self) -> Frame:
        """What to say first, if there is no objection already."""
        return self._own_hello() if self._handshake is None else _step(self._handshake.opening())

    def receive(self, kind: FrameKind, body: memoryview) -> Frame | Hello | Rejection:
        """What to send, who the other end is, or why nothing comes of it."""
        if kind is FrameKind.REJECT:
            return decode_rejection(body)
        if self._handshake is not None and self._proven is None:
            return self._prove(self._handshake, kind, body)
        if kind is not FrameKind.HELLO:
            raise PeerProtocolError(f"{kind.name} in place of a hello")
        hello = decode_hello(body)
        if isinstance(hello, Rejection):
            return hello
        self._hello = hello
        return self.objection() or hello

    def objection(self) -> Rejection | None:
        """Why the other end would not be let in now."""
        return _objection(self._local, self._proven, self._certificate, self._hello, self._peer_id)

    def unfinished(self, reason: str) -> Rejection | None:
        """What to tell of a connection that has ended."""
        if not self.is_proven:
            return ENDED_IN_HANDSHAKE
        if self._certificate is None:
            return None
        # It judges this node's certificate only after this end has taken its own.
        return Rejection(reason=RejectReason.TLS_FAILED, message=f"the other end has ended the connection: {reason}")

    def _prove(self, handshake: DialingPeer, kind: FrameKind, body: memoryview) -> Frame | Rejection:
        if kind is not FrameKind.AUTHENTICATE:
            raise PeerProtocolError(f"{kind.name} in the handshake")
        try:
            step = handshake.receive(bytes(body))
        except PeerRefused as refused:
            return _not_proven(refused)
        if isinstance(step, bytes):
            return _step(step)
        self._proven = step
        return self._own_hello()

    def _own_hello(self) -> Frame:
        return encode_frame(FrameKind.HELLO, (encode_hello(self._local.hello_to(self._peer_id)),))


class ListenerIntroduction:
    def __init__(self, local: LocalPeer, certificate: PeerCertificate | None = None) -> None:
        self._local = local
        self._certificate = certificate
        self._handshake: ListeningPeer | None = None
        secrets = local.credentials.secrets
        if secrets is not None:
            own, channel = local.identity.node_id, _channel(certificate)
            self._handshake = ListeningPeer(secrets, own, local.new_nonce(), channel)
        self._hello: Hello | None = None

    @property
    def claimed(self) -> NodeId | None:
        """Who the other end says that it is, which it may have no right to."""
        return None if self._hello is None else self._hello.node_id

    @property
    def _proven(self) -> ProvenPeer | None:
        return None if self._handshake is None else self._handshake.proven

    def receive(self, kind: FrameKind, body: memoryview) -> Frame | Hello | Rejection:
        """What to send, who the other end is, or why it is refused. It is told so unless it has ``NOT_PROVEN``."""
        if self._handshake is not None and self._proven is None:
            return self._prove(self._handshake, kind, body)
        if kind is FrameKind.AUTHENTICATE and self._handshake is None:
            return _NO_SECRET
        if kind is not FrameKind.HELLO:
            raise PeerProtocolError(f"{kind.name} in place of a hello")
        hello = decode_hello(body)
        if isinstance(hello, Rejection):
            return hello
        self._hello = hello
        return self.objection() or hello

    def objection(self) -> Rejection | None:
        """Why the other end would not be let in now."""
        return _objection(self._local, self._proven, self._certificate, self._hello)

    def _prove(self, handshake: ListeningPeer, kind: FrameKind, body: memoryview) -> Frame | Rejection:
        if kind is FrameKind.HELLO:
            return _NOTHING_PROVEN
        if kind is not FrameKind.AUTHENTICATE:
            raise PeerProtocolError(f"{kind.name} in place of a handshake")
        try:
            return _step(handshake.receive(bytes(body)))
        except PeerRefused as refused:
            return _not_proven(refused)


def _objection(
    local: LocalPeer,
    proven: ProvenPeer | None,
    certificate: PeerCertificate | None,
    hello: Hello | None,
    expected: NodeId | None = None,
) -> Rejection | None:
    if certificate is not None and (rejection := _of_certificate(local, certificate, hello, expected)) is not None:
        return rejection
    secrets = local.credentials.secrets
    if proven is not None and secrets is not None and not secrets.uphold(proven):
        return Rejection(reason=RejectReason.NOT_PROVEN, message="it has proven to know a secret that counts no more")
    if hello is None:
        return None
    if proven is not None and proven.node_id != hello.node_id:
        return Rejection(
            reason=RejectReason.NOT_PROVEN,
            message=f"it has proven to be node {proven.node_id}, and says that it is node {hello.node_id}",
        )
    return local.objection(hello, expected)


def _of_certificate(
    local: LocalPeer, certificate: PeerCertificate, hello: Hello | None, expected: NodeId | None
) -> Rejection | None:
    tls, shown = local.credentials.tls, certificate.node_id
    if tls is not None and not tls.uphold(certificate):
        return Rejection(
            reason=RejectReason.NOT_PROVEN, message="it has shown a certificate of an authority that counts no more"
        )
    if shown is None:
        return Rejection(reason=RejectReason.NOT_PROVEN, message="it has shown a certificate that names no node")
    if expected not in (None, shown):
        return Rejection(
            reason=RejectReason.WRONG_CERTIFICATE,
            message=f"node {expected} was dialled, and has shown the certificate of node {shown}",
        )
    if hello is not None and hello.node_id != shown:
        return Rejection(
            reason=RejectReason.WRONG_CERTIFICATE,
            message=f"it has shown the certificate of node {shown}, and says that it is node {hello.node_id}",
        )
    return None


def _channel(certificate: PeerCertificate | None) -> bytes:
    """What both ends prove to see of the connection below, so that nobody stands between them."""
    return b"" if certificate is None else certificate.channel


def _step(body: bytes) -> Frame:
    return encode_frame(FrameKind.AUTHENTICATE, (body,))


def _not_proven(refused: PeerRefused) -> Rejection:
    return Rejection(reason=RejectReason.NOT_PROVEN, message=str(refused))
