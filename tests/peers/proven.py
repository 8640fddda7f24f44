"""The end that dials a node and knows the cluster's secret, for tests that speak with nodes in their own words."""

import os
import socket
from struct import unpack

from quorate.kernel.ids import NodeId
from quorate.security.peer_handshake import NONCE_BYTES, ClusterSecrets, DialingPeer, ProvenPeer
from quorate.transport.peers.frames import FrameKind, encode_frame


def prove(connection: socket.socket, secrets: ClusterSecrets, own: int, meant: int) -> None:
    """The handshake, as node ``own``. What comes next is the hello."""
    dialing = DialingPeer(secrets, NodeId(own), NodeId(meant), os.urandom(NONCE_BYTES))
    step: bytes | ProvenPeer = dialing.opening()
    while isinstance(step, bytes):
        connection.sendall(b"".join(encode_frame(FrameKind.AUTHENTICATE, [step])))
        kind, body = receive_frame(connection)
        assert kind is FrameKind.AUTHENTICATE, kind
        step = dialing.receive(body)


def receive_frame(connection: socket.socket) -> tuple[FrameKind, bytes]:
    (length,) = unpack(">I", _receive(connection, 4))
    frame = _receive(connection, length)
    return FrameKind(frame[0]), frame[1:]


def _receive(connection: socket.socket, size_bytes: int) -> bytes:
    received = b""
    while len(received) < size_bytes:
        piece = connection.recv(size_bytes - len(received))
        if not piece:
            raise ConnectionError("the node has closed the connection")
        received += piece
    return received
