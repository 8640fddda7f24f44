"""Nodes show each other that they know the cluster's secret, before anything else is said. The secret is never sent.

The one who dials proves first, so that a stranger who dials hears a random number and nothing more:

    dialer    → opening:  a nonce
    listener  → answer:   a nonce
    dialer    → proof:    its node id, whom it means to reach, an HMAC under each secret that it knows
    listener  → proof:    its node id, an HMAC under the secret that both know

An HMAC is over the side that makes it, both nonces, both node ids and the channel. So none is good for another
connection, for the other direction, or on behalf of another node. Of two secrets one in common is enough: a new one is
given to all nodes beside the old one, and then the old one is taken away.
"""

import hmac
import re
from collections.abc import Iterable
from struct import Struct
from typing import Final

import msgspec

from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NO_NODE, NodeId

NONCE_BYTES: Final = 32
#: No frame of the handshake is longer.
MAX_FRAME_BYTES: Final = 128
MAX_SECRETS: Final = 2
_PROOF_BYTES: Final = 32
#: Of a secret that somebody chose: fewer could be guessed by whoever records a handshake.
_MIN_SECRET_CHARACTERS: Final = 32
_SECRET: Final = re.compile(r"[\x21-\x7e]+")

_OPENING: Final = Struct(f">4sB{NONCE_BYTES}s")
_ANSWER: Final = Struct(f">4sB{NONCE_BYTES}s")
_DIALER_PROOF: Final = Struct(">iiB")
_LISTENER_PROOF: Final = Struct(f">i{_PROOF_BYTES}s")
_MAGIC: Final = b"QPH\0"
_VERSION: Final = 1
_PURPOSE: Final = "peers"


class PeerRefused(Exception):
    """The other end is no node of this cluster, or not the one that was meant; says why, for the log."""


class ClusterSecrets:
    """The secrets that count now, one or two. Shown without them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = tuple(dict.fromkeys(secrets))
        if not 0 < len(self._secrets) <= MAX_SECRETS:
            raise QuorateError(f"a cluster has one secret, or {MAX_SECRETS} while they are changed")
        for secret in self._secrets:
            if len(secret) < _MIN_SECRET_CHARACTERS or _SECRET.fullmatch(secret) is None:
                raise QuorateError(
                    f"a cluster's secret has at least {_MIN_SECRET_CHARACTERS} printable characters without spaces"
                )

    def __repr__(self) -> str:
        return f"ClusterSecrets({len(self._secrets)})"

    def uphold(self, proven: "ProvenPeer") -> bool:
        """Whether what the peer has proven once is worth something with these secrets."""
        return any(_is_same(key, proven.key) for key in self.keys(_PURPOSE))

    def keys(self, purpose: str) -> tuple[bytes, ...]:
        """A key of each secret for one purpose: what is learnt of one says nothing about another."""
        return tuple(hmac.digest(secret.encode(), purpose.encode(), "sha256") for secret in self._secrets)


def new_secret(random_bytes: bytes) -> str:
    assert len(random_bytes) >= NONCE_BYTES
    return random_bytes.hex()


def parse_secrets(text: str) -> ClusterSecrets:
    """The content of a secret's file: one secret in a line, the preferred one first."""
    return ClusterSecrets(line.strip() for line in text.splitlines() if line.strip())


class ProvenPeer(msgspec.Struct, frozen=True, kw_only=True):
    """The other end knows the secret, and is this node."""

    node_id: NodeId
    #: Of the secret that both know: where that one counts no more, neither does the proof.
    key: bytes

    def __repr__(self) -> str:
        return f"ProvenPeer({self.node_id})"


class _Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """What both ends have to agree on."""

    dialer_nonce: bytes
    listener_nonce: bytes
    dialer: NodeId
    #: Whom the dialer means to reach; NO_NODE where it does not know.
    meant: NodeId
    channel: bytes

    def digest(self, key: bytes, what: str, listener: NodeId) -> bytes:
        parts = (
            what.encode(),
            self.dialer_nonce,
            self.listener_nonce,
            _DIALER_PROOF.pack(self.dialer, self.meant, _VERSION),
            listener.to_bytes(4, signed=True),
            self.channel,
        )
        # Each with its length, so that no two transcripts are the same bytes.
        return hmac.digest(key, b"".join(len(part).to_bytes(4) + part for part in parts), "sha256")


class DialingPeer:
    """The side that connects: ``opening``, then ``receive`` with each frame until it returns who the other is."""

    def __init__(
        self, secrets: ClusterSecrets, own: NodeId, meant: NodeId | None, nonce: bytes, channel: bytes = b""
    ) -> None:
        assert len(nonce) == NONCE_BYTES
        self._keys = secrets.keys(_PURPOSE)
        self._own = own
        self._meant = NO_NODE if meant is None else meant
        self._nonce = nonce
        #: What both ends know of the connection below and nobody can choose, as a hash of the listener's certificate.
        self._channel = channel
        self._transcript: _Transcript | None = None

    def opening(self) -> bytes:
        return _OPENING.pack(_MAGIC, _VERSION, self._nonce)

    def receive(self, frame: bytes) -> bytes | ProvenPeer:
        return self._prove(frame) if self._transcript is None else self._verify(frame, self._transcript)

    def _prove(self, frame: bytes) -> bytes:
        listener_nonce = _read_nonce(_ANSWER, frame)
        if listener_nonce == self._nonce:
            raise PeerRefused("the other end repeats this node's nonce")
        transcript = self._transcript = _Transcript(
            dialer_nonce=self._nonce,
            listener_nonce=listener_nonce,
            dialer=self._own,
            meant=self._meant,
            channel=self._channel,
        )
        proofs = [transcript.digest(key, "dialer", NO_NODE) for key in self._keys]
        return _DIALER_PROOF.pack(self._own, self._meant, len(proofs)) + b"".join(proofs)

    def _verify(self, frame: bytes, transcript: _Transcript) -> ProvenPeer:
        if len(frame) != _LISTENER_PROOF.size:
            raise PeerRefused("the other end's proof is malformed")
        node, proof = _LISTENER_PROOF.unpack(frame)
        listener = NodeId(node)
        fitting = [key for key in self._keys if _is_same(transcript.digest(key, "listener", listener), proof)]
        if not fitting:
            raise PeerRefused("the other end does not know this cluster's secret")
        if listener < 0 or listener == self._own or self._meant not in (NO_NODE, listener):
            raise PeerRefused(f"the other end is node {listener} and not the one that was meant")
        return ProvenPeer(node_id=listener, key=fitting[0])


class ListeningPeer:
    """The side that was connected to: ``receive`` with each frame, and send what it returns."""

    def __init__(self, secrets: ClusterSecrets, own: NodeId, nonce: bytes, channel: bytes = b"") -> None:
        assert len(nonce) == NONCE_BYTES
        self._keys = secrets.keys(_PURPOSE)
        self._own = own
        self._nonce = nonce
        self._channel = channel
        self._dialer_nonce: bytes | None = None
        #: Set with the last frame.
        self.proven: ProvenPeer | None = None

    def receive(self, frame: bytes) -> bytes:
        return self._answer(frame) if self._dialer_nonce is None else self._verify(frame, self._dialer_nonce)

    def _answer(self, frame: bytes) -> bytes:
        dialer_nonce = _read_nonce(_OPENING, frame)
        if dialer_nonce == self._nonce:
            raise PeerRefused("the other end repeats this node's nonce")
        self._dialer_nonce = dialer_nonce
        return _ANSWER.pack(_MAGIC, _VERSION, self._nonce)

    def _verify(self, frame: bytes, dialer_nonce: bytes) -> bytes:
        dialer, meant, proofs = _read_proofs(frame)
        transcript = _Transcript(
            dialer_nonce=dialer_nonce,
            listener_nonce=self._nonce,
            dialer=dialer,
            meant=meant,
            channel=self._channel,
        )
        fitting = [
            key
            for key in self._keys
            # All are compared, so that the time does not tell which one it was.
            if sum(_is_same(transcript.digest(key, "dialer", NO_NODE), proof) for proof in proofs)
        ]
        if not fitting:
            raise PeerRefused("the other end does not know this cluster's secret")
        if dialer < 0 or dialer == self._own:
            raise PeerRefused(f"the other end says that it is node {dialer}")
        if meant not in (NO_NODE, self._own):
            raise PeerRefused(f"node {dialer} means to reach node {meant}")
        key = fitting[0]
        self.proven = ProvenPeer(node_id=dialer, key=key)
        return _LISTENER_PROOF.pack(self._own, transcript.digest(key, "listener", self._own))


def _read_nonce(form: Struct, frame: bytes) -> bytes:
    if len(frame) != form.size:
        raise PeerRefused("the other end does not begin as a node does")
    magic, version, nonce = form.unpack(frame)
    if magic != _MAGIC or not isinstance(nonce, bytes):
        raise PeerRefused("the other end does not begin as a node does")
    if version != _VERSION:
        raise PeerRefused(f"the other end has version {version} of the handshake, this node {_VERSION}")
    return nonce


def _read_proofs(frame: bytes) -> tuple[NodeId, NodeId, list[bytes]]:
    start = _DIALER_PROOF.size
    if len(frame) < start:
        raise PeerRefused("the other end's proof is malformed")
    dialer, meant, count = _DIALER_PROOF.unpack_from(frame)
    if not 0 < count <= MAX_SECRETS or len(frame) != start + count * _PROOF_BYTES:
        raise PeerRefused("the other end's proof is malformed")
    proofs = [frame[start + index * _PROOF_BYTES :][:_PROOF_BYTES] for index in range(count)]
    return NodeId(dialer), NodeId(meant), proofs


def _is_same(one: bytes, other: bytes) -> bool:
    return hmac.compare_digest(one, other)
