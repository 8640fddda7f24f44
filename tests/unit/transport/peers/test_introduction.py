"""How a connection begins: a proof before any word, and to a stranger nothing but that it is wanted."""

import asyncio
from random import Random
from typing import Any, cast

import pytest
from msgspec.structs import replace

from quorate.kernel.ids import NO_DIRECTORY, NodeId
from quorate.security.peer_handshake import MAX_FRAME_BYTES, ClusterSecrets
from quorate.security.peer_tls import PeerCertificate, PeerCredentials
from quorate.transport.peers.config import PeerConfig, PeerIdentity
from quorate.transport.peers.errors import PeerProtocolError
from quorate.transport.peers.frames import FrameKind
from quorate.transport.peers.hello import Hello, Rejection, RejectReason, encode_hello
from quorate.transport.peers.introduction import (
    ENDED_IN_HANDSHAKE,
    DiallerIntroduction,
    Frame,
    ListenerIntroduction,
)
from quorate.transport.peers.local import LocalPeer
from tests.unit.transport.peer_ends import SteppedLoop

A, B, C = NodeId(7), NodeId(100), NodeId(4001)
CLUSTER = "blue"
OLD, NEW, OTHER = "o" * 32, "n" * 32, "x" * 32


def node(node_id: NodeId, *secrets: str, cluster_id: str = CLUSTER) -> LocalPeer:
    identity = PeerIdentity(node_id=node_id, cluster_id=cluster_id, incarnation=1, directory_id=NO_DIRECTORY)
    loop = cast(asyncio.AbstractEventLoop, SteppedLoop())
    return LocalPeer(loop, Random(node_id), identity, PeerConfig(), knowing(*secrets))


def knowing(*secrets: str) -> PeerCredentials:
    return PeerCredentials(secrets=ClusterSecrets(secrets) if secrets else None)


def split(frame: Frame) -> tuple[FrameKind, memoryview]:
    joined = b"".join(frame)
    return FrameKind(joined[4]), memoryview(joined)[5:]


class Meeting:
    """A dials B; each step gives the other what one has said."""

    def __init__(self, a: LocalPeer, b: LocalPeer, meant: NodeId = B) -> None:
        self.dialler = DiallerIntroduction(a, meant)
        self.listener = ListenerIntroduction(b)
        self.said: list[bytes] = []
        self.reached: Hello | Rejection | None = None
        self.came: Hello | Rejection | None = None

    def go(self) -> "Meeting":
        frame: Any = self.dialler.opening()
        while True:
            self.came = self._note(self.listener.receive(*split(frame)))
            if self.came is not None:
                return self
            self.reached = self._note(self.dialler.receive(*split(self._last)))
            if self.reached is not None:
                return self
            frame = self._last

    def _note(self, found: Frame | Hello | Rejection) -> Hello | Rejection | None:
        if isinstance(found, Hello | Rejection):
            return found
        self._last = found
        self.said.append(b"".join(found))
        return None


@pytest.mark.parametrize("secrets", [((), ()), ((OLD,), (OLD,)), ((OLD, NEW), (NEW,))], ids=["none", "same", "common"])
def test_nodes_of_a_cluster_get_to_know_each_other(secrets: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    a, b = node(A, *secrets[0]), node(B, *secrets[1])
    meeting = Meeting(a, b).go()
    assert isinstance(meeting.came, Hello)
    assert meeting.came.node_id == A

    answer = meeting.dialler.receive(FrameKind.HELLO, memoryview(encode_hello(b.hello_to(A))))
    assert isinstance(answer, Hello)
    assert answer.node_id == B


def test_a_stranger_learns_no_cluster_id_and_no_node_id() -> None:
    meeting = Meeting(node(C, OTHER), node(B, OLD)).go()

    assert isinstance(meeting.came, Rejection)
    assert meeting.came.reason == RejectReason.NOT_PROVEN
    heard = b"".join(frame for frame in meeting.said[::2])  # What B has said before it knew.
    assert len(heard) < MAX_FRAME_BYTES
    assert CLUSTER.encode() not in heard
    assert B.to_bytes(4) not in heard


def test_who_listens_in_a_nodes_place_learns_no_cluster_id() -> None:
    stranger = ListenerIntroduction(node(B, OTHER))
    dialler = DiallerIntroduction(node(A, OLD), B)
    answer = stranger.receive(*split(dialler.opening()))
    assert not isinstance(answer, Hello | Rejection)
    proof = dialler.receive(*split(answer))
    assert not isinstance(proof, Hello | Rejection)
    forged = B.to_bytes(4) + bytes(32)
    found = dialler.receive(FrameKind.AUTHENTICATE, memoryview(forged))

    assert isinstance(found, Rejection)
    assert found.reason == RejectReason.NOT_PROVEN
    assert not dialler.is_proven
    assert CLUSTER.encode() not in b"".join(proof)


def test_a_node_of_an_earlier_version_is_told_that_it_needs_the_secret() -> None:
    hello = encode_hello(node(A).hello_to(B))
    found = ListenerIntroduction(node(B, OLD)).receive(FrameKind.HELLO, memoryview(hello))

    assert isinstance(found, Rejection)
    assert found.reason == RejectReason.UNAUTHENTICATED
    assert "cluster_secret_file" in found.message
    assert CLUSTER not in found.message


def test_a_node_that_has_no_secret_says_so_to_one_that_has() -> None:
    found = Meeting(node(A, OLD), node(B)).go().came

    assert isinstance(found, Rejection)
    assert found.reason == RejectReason.UNAUTHENTICATED


def test_an_end_in_the_handshake_is_told_as_such() -> None:
    dialler = DiallerIntroduction(node(A, OLD), B)
    assert dialler.unfinished("closed") is ENDED_IN_HANDSHAKE
    assert DiallerIntroduction(node(A), B).unfinished("closed") is None


@pytest.mark.parametrize("kind", [FrameKind.MESSAGE, FrameKind.REQUEST, FrameKind.PING, FrameKind.RESPONSE])
def test_nothing_else_is_read_before_the_proof(kind: FrameKind) -> None:
    with pytest.raises(PeerProtocolError, match="in place of a handshake"):
        ListenerIntroduction(node(B, OLD)).receive(kind, memoryview(b"I lead"))
    with pytest.raises(PeerProtocolError, match="in the handshake"):
        DiallerIntroduction(node(A, OLD), B).receive(kind, memoryview(b"I lead"))


def test_a_node_cannot_say_hello_for_another_one() -> None:
    """It knows the secret, and has proven to be itself."""
    meeting = Meeting(node(A, OLD), node(B, OLD))
    listener, dialler = meeting.listener, meeting.dialler
    answer: Any = listener.receive(*split(dialler.opening()))
    proof: Any = dialler.receive(*split(answer))
    listener.receive(*split(proof))
    found = listener.receive(FrameKind.HELLO, memoryview(encode_hello(node(C).hello_to(B))))

    assert isinstance(found, Rejection)
    assert found.reason == RejectReason.NOT_PROVEN
    assert "proven to be node 7" in found.message


def test_a_second_handshake_is_none() -> None:
    meeting = Meeting(node(A, OLD), node(B, OLD)).go()
    with pytest.raises(PeerProtocolError, match="AUTHENTICATE in place of a hello"):
        meeting.listener.receive(*split(meeting.dialler.opening()))


def test_who_has_proven_a_secret_that_counts_no_more_is_objected_to() -> None:
    a, b = node(A, OLD, NEW), node(B, OLD, NEW)
    meeting = Meeting(a, b).go()
    assert meeting.listener.objection() is None
    b.credentials = knowing(NEW)

    rejection = meeting.listener.objection()
    assert rejection is not None
    assert rejection.reason == RejectReason.NOT_PROVEN
    a.credentials = knowing(OLD)
    assert meeting.dialler.objection() is None


SHOWN_BY_A, SHOWN_BY_B = (
    PeerCertificate(node_id=node_id, authority=b"authority", channel=b"certificate of B") for node_id in (A, B)
)


def meet(shown_to_b: PeerCertificate, shown_to_a: PeerCertificate, *secrets: str) -> Meeting:
    meeting = Meeting(node(A, *secrets), node(B, *secrets))
    meeting.dialler = DiallerIntroduction(node(A, *secrets), B, shown_to_a)
    meeting.listener = ListenerIntroduction(node(B, *secrets), shown_to_b)
    return meeting


@pytest.mark.parametrize("secrets", [(), (OLD,)], ids=["certificates", "both"])
def test_nodes_with_certificates_get_to_know_each_other(secrets: tuple[str, ...]) -> None:
    meeting = meet(SHOWN_BY_A, SHOWN_BY_B, *secrets).go()
    assert meeting.dialler.objection() is None
    assert isinstance(meeting.came, Hello)
    assert meeting.came.node_id == A


def test_a_hello_for_another_node_than_the_certificates_is_refused_and_told() -> None:
    found = meet(replace(SHOWN_BY_A, node_id=C), SHOWN_BY_B).go().came
    assert isinstance(found, Rejection)
    assert found.reason == RejectReason.WRONG_CERTIFICATE
    assert found.message == "it has shown the certificate of node 4001, and says that it is node 7"


def test_who_was_not_meant_is_told_nothing_at_all() -> None:
    rejection = meet(SHOWN_BY_A, replace(SHOWN_BY_B, node_id=C)).dialler.objection()
    assert rejection is not None
    assert rejection.reason == RejectReason.WRONG_CERTIFICATE


def test_a_certificate_that_names_no_node_is_worth_nothing() -> None:
    meeting = meet(replace(SHOWN_BY_A, node_id=None), replace(SHOWN_BY_B, node_id=None))
    for rejection in (meeting.dialler.objection(), meeting.listener.objection()):
        assert rejection is not None
        assert rejection.reason == RejectReason.NOT_PROVEN


def test_who_stands_between_with_a_certificate_of_its_own_cannot_pass_on_a_proof() -> None:
    """It has a stolen one of node B, and shows it to A; it does not know the secret, and passes on what B says."""
    meeting = meet(SHOWN_BY_A, replace(SHOWN_BY_B, channel=b"stolen certificate"), OLD).go()
    assert isinstance(meeting.came, Rejection)
    assert meeting.came.reason == RejectReason.NOT_PROVEN
