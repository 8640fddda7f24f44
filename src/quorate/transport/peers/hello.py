"""How two nodes introduce themselves, why one refuses the other, and which refusals are logged.

Both ends send a hello, once they have proven to each other that they know the cluster's secret. What follows on the
connection counts as said by that node of that cluster: every message carries the cluster id by way of its connection.

The id of a data folder is told to nobody but the nodes of a cluster: whoever names that of the node it dials has read
the cluster's metadata, also where this node has not heard of it yet. A stranger is told neither it nor the cluster id.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from enum import StrEnum
from struct import Struct

import msgspec

from quorate.kernel.decoding import decode_msgpack
from quorate.kernel.errors import UNREADABLE
from quorate.kernel.ids import NO_DIRECTORY, DirectoryId, NodeId
from quorate.transport.peers.config import PeerIdentity
from quorate.transport.peers.errors import PeerProtocolError

logger = logging.getLogger(__name__)

#: 5: messages and requests name their channel.
PROTOCOL_VERSION = 5
#: Nothing larger is read from an end that has not introduced itself.
MAX_HELLO_BYTES = 4096

_VERSION = Struct(">H")
#: Of what a stranger says, this much is repeated to it and logged.
_QUOTED_CHARS = 100


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    node_id: NodeId
    #: Whom the sender believes to be talking to: a stale address must not make one node pass for another.
    target_id: NodeId
    incarnation: int
    #: ``NO_DIRECTORY`` in an answer to a node that is not known.
    directory_id: DirectoryId
    #: The data folder by which the sender knows the target, or ``NO_DIRECTORY``.
    target_directory_id: DirectoryId


class RejectReason(StrEnum):
    UNKNOWN_VERSION = "unknown-version"
    WRONG_CLUSTER = "wrong-cluster"
    WRONG_TARGET = "wrong-target"
    SAME_NODE_ID = "same-node-id"
    OTHER_DIRECTORY = "other-directory"
    #: One end proves to know the cluster's secret, and the other end knows of none.
    UNAUTHENTICATED = "unauthenticated"
    #: It knows another secret, or is not the node that it says. Told to nobody, only logged.
    NOT_PROVEN = "not-proven"
    #: It has shown the certificate of another node than it says to be, or than was meant.
    WRONG_CERTIFICATE = "wrong-certificate"
    #: There was no handshake of TLS that both ends agreed to. Told to nobody but by TLS itself, and logged.
    TLS_FAILED = "tls-failed"
    #: Told to nobody, only logged.
    PROTOCOL_BROKEN = "protocol-broken"


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    reason: str  # A RejectReason, or one that a later version has.
    message: str


def encode_hello(hello: Hello) -> bytes:
    return _VERSION.pack(PROTOCOL_VERSION) + msgspec.msgpack.encode(hello)


def decode_hello(body: memoryview) -> Hello | Rejection:
    """The hello, or why this version of it cannot be understood."""
    if len(body) < _VERSION.size:
        raise PeerProtocolError("hello without a version")
    (version,) = _VERSION.unpack_from(body)
    if version != PROTOCOL_VERSION:
        return Rejection(
            reason=RejectReason.UNKNOWN_VERSION,
            message=f"peer protocol version {version} is not known here, only {PROTOCOL_VERSION}",
        )
    try:
        return decode_msgpack(body[_VERSION.size :], Hello)
    except UNREADABLE as error:
        raise PeerProtocolError(f"malformed hello: {error}") from None


def encode_rejection(rejection: Rejection) -> bytes:
    return msgspec.msgpack.encode(rejection)


def decode_rejection(body: memoryview) -> Rejection:
    try:
        return decode_msgpack(body, Rejection)
    except UNREADABLE as error:
        raise PeerProtocolError(f"malformed rejection: {error}") from None


def objection(
    hello: Hello, me: PeerIdentity, expected: NodeId | None = None, known_directory: DirectoryId = NO_DIRECTORY
) -> Rejection | None:
    """Why this node does not talk to the sender; ``expected`` is whom it has dialled. The sender is told so.

    One whose data folder is another than the cluster knows must not be counted on: its votes and what it has
    acknowledged are lost.
    """
    if hello.cluster_id != me.cluster_id:
        return Rejection(
            reason=RejectReason.WRONG_CLUSTER,
            message=f"node {hello.node_id} says that it is of cluster {hello.cluster_id[:_QUOTED_CHARS]!r}, which this "
            f"node is not of: compare the cluster_id in the configurations of both",
        )
    if hello.target_id != me.node_id:
        return Rejection(
            reason=RejectReason.WRONG_TARGET,
            message=f"node {hello.node_id} looks for node {hello.target_id}, this is node {me.node_id}",
        )
    if hello.node_id == me.node_id:
        return Rejection(
            reason=RejectReason.SAME_NODE_ID,
            message=f"two nodes have the id {me.node_id}: give each its own",
        )
    if expected is not None and hello.node_id != expected:
        return Rejection(
            reason=RejectReason.WRONG_TARGET,
            message=f"node {expected} was dialled, node {hello.node_id} answered",
        )
    if known_directory not in (NO_DIRECTORY, hello.directory_id):
        return Rejection(
            reason=RejectReason.OTHER_DIRECTORY,
            message=f"node {hello.node_id} does not have the data folder that it had: "
            f"remove it from the cluster for good, then it can join anew",
        )
    return None


#: The latest; what is said in older ones would be logged again.
_MAX_REMEMBERED = 1000
_MAX_LINES = 20
_PER_S = 60.0
#: Of what a peer has said, this much is logged.
_LOGGED_CHARS = 500


class RefusalLog:
    """Refusals are logged once each, and not too many at once.

    A node that is turned away comes back every second, and whoever can connect can make up names.
    """

    def __init__(self, identity: PeerIdentity, now_s: Callable[[], float]) -> None:
        self._identity = identity
        self._now_s = now_s
        self._logged: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._interval_began_s = now_s()
        self._lines = 0
        self._left_out = 0

    def note(self, peer: str, rejection: Rejection) -> None:
        key = (peer, rejection.reason)
        if key in self._logged:
            self._logged.move_to_end(key)
            return
        if not self._may_log():
            self._left_out += 1
            return
        self._logged[key] = None
        if len(self._logged) > _MAX_REMEMBERED:
            self._logged.popitem(last=False)
        logger.warning(
            "peer refused node=%s cluster=%s peer=%s reason=%r message=%r left_out=%s",
            self._identity.node_id,
            self._identity.cluster_id,
            peer,
            rejection.reason[:_LOGGED_CHARS],
            rejection.message[:_LOGGED_CHARS],
            self._left_out,
        )
        self._left_out = 0

    def forget(self, peer: str) -> None:
        """The peer is fine now: a later refusal is news again."""
        for key in [key for key in self._logged if key[0] == peer]:
            del self._logged[key]

    def _may_log(self) -> bool:
        now_s = self._now_s()
        if now_s - self._interval_began_s >= _PER_S:
            self._interval_began_s, self._lines = now_s, 0
        self._lines += 1
        return self._lines <= _MAX_LINES
