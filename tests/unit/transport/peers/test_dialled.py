"""What comes on a connection that nobody waits for any more is no fault of the other end."""

import asyncio
import logging
from random import Random
from typing import cast

import pytest

from quorate.kernel.ids import NO_DIRECTORY, NodeId
from quorate.security.peer_handshake import ClusterSecrets
from quorate.security.peer_tls import PeerCredentials
from quorate.transport.peers.config import PeerConfig, PeerIdentity
from quorate.transport.peers.frames import FrameKind, encode_frame
from quorate.transport.peers.link import DialledConnection
from quorate.transport.peers.local import LocalPeer
from quorate.transport.peers.stream import PeerStream
from tests.unit.transport.peer_ends import FakeTransport, feed

A, B = NodeId(7), NodeId(100)


def test_an_answer_in_the_moment_in_which_a_dial_is_given_up_is_not_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        identity = PeerIdentity(node_id=A, cluster_id="blue", incarnation=1, directory_id=NO_DIRECTORY)
        credentials = PeerCredentials(secrets=ClusterSecrets(["s" * 32]))
        local = LocalPeer(asyncio.get_running_loop(), Random(1), identity, PeerConfig(), credentials)
        connection = DialledConnection(local, B)
        stream, transport = connection.open_protocol(), FakeTransport()
        assert isinstance(stream, PeerStream)
        stream.connection_made(cast(asyncio.Transport, transport))
        connection.introduced.cancel()
        feed(stream, b"".join(encode_frame(FrameKind.AUTHENTICATE, [bytes(37)])))
        assert not transport.aborted
        connection.abort("not introduced")
        assert transport.aborted

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert caplog.records == []
