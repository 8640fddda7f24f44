"""How two nodes introduce themselves, and why one refuses the other. Pure.

Both ends send a hello first. What follows on the connection counts as said by that node of that cluster: every message
carries the cluster id by way of its connection.
"""

from enum import StrEnum
from struct import Struct

import msgspec

from quorate.kernel.ids import NO_DIRECTORY, DirectoryId, NodeId, is_same_directory
from quorate.transport.peer_config import Address, PeerIdentity
from quorate.transport.peer_errors import PeerProtocolError

PROTOCOL_VERSION = 3
#: Nothing larger is read from an end that has not introduced itself.
MAX_HELLO_BYTES = 4096

_VERSION = Struct(">H")


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    node_id: NodeId
    #: Whom the sender believes to be talking to: a stale address must not make one node pass for another.
    target_id: NodeId
    incarnation: int
    directory_id: DirectoryId
    #: Where the sender listens for its peers.
    address: Address


class RejectReason(StrEnum):
    UNKNOWN_VERSION = "unknown-version"
    WRONG_CLUSTER = "wrong-cluster"
    WRONG_TARGET = "wrong-target"
    SAME_NODE_ID = "same-node-id"
    OTHER_DIRECTORY = "other-directory"


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
        return msgspec.msgpack.decode(body[_VERSION.size :], type=Hello)
    except msgspec.DecodeError as error:
        raise PeerProtocolError(f"malformed hello: {error}") from None


def encode_rejection(rejection: Rejection) -> bytes:
    return msgspec.msgpack.encode(rejection)


def decode_rejection(body: memoryview) -> Rejection:
    try:
        return msgspec.msgpack.decode(body, type=Rejection)
    except msgspec.DecodeError as error:
        raise PeerProtocolError(f"malformed rejection: {error}") from None


def objection(
    hello: Hello, me: PeerIdentity, expected: NodeId | None = None, known_directory: DirectoryId = NO_DIRECTORY
) -> Rejection | None:
    """Why this node does not talk to the sender; ``expected`` is whom it has dialled.

    One whose data folder is another than the cluster knows must not be counted on: its votes and what it has
    acknowledged are lost.
    """
    if hello.cluster_id != me.cluster_id:
        return Rejection(
            reason=RejectReason.WRONG_CLUSTER,
            message=f"node {hello.node_id} is of cluster {hello.cluster_id!r}, this is {me.cluster_id!r}",
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
    if not is_same_directory(hello.directory_id, known_directory):
        return Rejection(
            reason=RejectReason.OTHER_DIRECTORY,
            message=f"node {hello.node_id} does not have the data folder that it had: "
            f"remove it from the cluster for good, then it can join anew",
        )
    return None
