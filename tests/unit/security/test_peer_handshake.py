"""Nodes that know the secret find each other; strangers, replays, relays and reflections get nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.security.peer_handshake import (
    MAX_FRAME_BYTES,
    ClusterSecrets,
    DialingPeer,
    ListeningPeer,
    PeerRefused,
    ProvenPeer,
    new_secret,
    parse_secrets,
)

OLD, NEW, OTHER = "o" * 32, "n" * 32, "x" * 32
ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
DIALER_NONCE, LISTENER_NONCE = b"\x01" * 32, b"\x02" * 32


def secrets(*texts: str) -> ClusterSecrets:
    return ClusterSecrets(texts)


def dialer(
    known: ClusterSecrets, meant: NodeId | None = TWO, channel: bytes = b"", nonce: bytes = DIALER_NONCE
) -> DialingPeer:
    return DialingPeer(known, ONE, meant, nonce, channel)


def listener(
    known: ClusterSecrets, own: NodeId = TWO, channel: bytes = b"", nonce: bytes = LISTENER_NONCE
) -> ListeningPeer:
    return ListeningPeer(known, own, nonce, channel)


def shake(one: DialingPeer, other: ListeningPeer) -> tuple[ProvenPeer, ProvenPeer]:
    proof = one.receive(other.receive(one.opening()))
    assert isinstance(proof, bytes)
    reached = one.receive(other.receive(proof))
    assert isinstance(reached, ProvenPeer)
    assert other.proven is not None
    return reached, other.proven


@pytest.mark.parametrize("meant", [TWO, None])
def test_two_nodes_with_one_secret_find_each_other(meant: NodeId | None) -> None:
    reached, came = shake(dialer(secrets(OLD), meant), listener(secrets(OLD)))

    assert (reached.node_id, came.node_id) == (TWO, ONE)
    assert reached.key == came.key
    assert repr(reached.key) not in repr(reached)


@pytest.mark.parametrize(
    ("one", "other"),
    [((OLD,), (OLD, NEW)), ((NEW, OLD), (OLD,)), ((OLD, NEW), (NEW, OLD)), ((OLD, NEW), (NEW,)), ((NEW,), (NEW,))],
)
def test_one_secret_in_common_is_enough(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    reached, came = shake(dialer(secrets(*one)), listener(secrets(*other)))

    assert reached.key == came.key
    assert secrets(*one).uphold(came)
    assert secrets(*other).uphold(reached)


def test_of_two_common_secrets_the_one_that_the_listener_prefers_counts() -> None:
    _, came = shake(dialer(secrets(OLD, NEW)), listener(secrets(NEW, OLD)))

    assert secrets(NEW).uphold(came)
    assert not secrets(OLD).uphold(came)


@pytest.mark.parametrize(("one", "other"), [((OLD,), (NEW,)), ((OLD, NEW), (OTHER,)), ((OTHER,), (OLD, NEW))])
def test_a_stranger_who_dials_hears_a_nonce_and_no_more(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    stranger, node = dialer(secrets(*one)), listener(secrets(*other))
    answer = node.receive(stranger.opening())
    assert answer.endswith(LISTENER_NONCE)
    proof = stranger.receive(answer)
    assert isinstance(proof, bytes)

    with pytest.raises(PeerRefused, match="does not know this cluster's secret"):
        node.receive(proof)
    assert node.proven is None


def test_a_stranger_who_listens_is_not_believed() -> None:
    node, stranger = dialer(secrets(OLD)), listener(secrets(OTHER))
    node.receive(stranger.receive(node.opening()))
    for proof in (b"", b"\x00" * 36, (2).to_bytes(4) + DIALER_NONCE):
        with pytest.raises(PeerRefused):
            node.receive(proof)


def test_a_recorded_handshake_is_of_no_use() -> None:
    recorded = dialer(secrets(OLD))
    proof = recorded.receive(listener(secrets(OLD)).receive(recorded.opening()))
    assert isinstance(proof, bytes)
    later = listener(secrets(OLD), nonce=b"\x03" * 32)
    later.receive(recorded.opening())

    with pytest.raises(PeerRefused):
        later.receive(proof)


def test_what_a_node_says_cannot_be_reflected_to_it() -> None:
    node = listener(secrets(OLD))
    with pytest.raises(PeerRefused, match="repeats"):
        node.receive(dialer(secrets(OLD), nonce=LISTENER_NONCE).opening())
    other = dialer(secrets(OLD))
    with pytest.raises(PeerRefused, match="repeats"):
        other.receive(other.opening())

    # A listener's proof is none of a dialer, whoever is made to compute it.
    dialing = dialer(secrets(OLD))
    listening = listener(secrets(OLD))
    proof = dialing.receive(listening.receive(dialing.opening()))
    assert isinstance(proof, bytes)
    own = listening.receive(proof)
    again = listener(secrets(OLD))
    again.receive(dialer(secrets(OLD)).opening())
    with pytest.raises(PeerRefused):
        again.receive(proof[:9] + own[4:])


def test_a_connection_that_is_led_to_another_node_is_refused_by_both() -> None:
    one, three = dialer(secrets(OLD), meant=TWO), listener(secrets(OLD), own=THREE)
    proof = one.receive(three.receive(one.opening()))
    assert isinstance(proof, bytes)
    with pytest.raises(PeerRefused, match="means to reach node 2"):
        three.receive(proof)

    # If it pretended not to have noticed, the dialer would.
    pretending = listener(secrets(OLD), own=THREE)
    anywhere = dialer(secrets(OLD), meant=None)
    proof = anywhere.receive(pretending.receive(anywhere.opening()))
    assert isinstance(proof, bytes)
    anywhere._meant = TWO
    with pytest.raises(PeerRefused, match="is node 3 and not the one that was meant"):
        anywhere.receive(pretending.receive(proof))


def test_nobody_is_this_node_itself_or_no_node() -> None:
    for own in (ONE, NodeId(-1)):
        one = DialingPeer(secrets(OLD), own, None, DIALER_NONCE)
        node = listener(secrets(OLD), own=ONE)
        proof = one.receive(node.receive(one.opening()))
        assert isinstance(proof, bytes)
        with pytest.raises(PeerRefused, match="says that it is node"):
            node.receive(proof)


def test_a_node_id_cannot_be_changed_on_the_way() -> None:
    one, two = dialer(secrets(OLD)), listener(secrets(OLD))
    proof = one.receive(two.receive(one.opening()))
    assert isinstance(proof, bytes)
    with pytest.raises(PeerRefused):
        two.receive((9).to_bytes(4) + proof[4:])


def test_a_handshake_is_worth_nothing_on_another_channel() -> None:
    one, two = dialer(secrets(OLD), channel=b"certificate of a"), listener(secrets(OLD), channel=b"certificate of b")
    proof = one.receive(two.receive(one.opening()))
    assert isinstance(proof, bytes)
    with pytest.raises(PeerRefused):
        two.receive(proof)
    shake(dialer(secrets(OLD), channel=b"a"), listener(secrets(OLD), channel=b"a"))


@given(st.binary(max_size=140), st.binary(max_size=140))
def test_no_frame_makes_a_node_fail(first: bytes, second: bytes) -> None:
    with pytest.raises(PeerRefused):
        listener(secrets(OLD)).receive(first)
    node = listener(secrets(OLD))
    node.receive(dialer(secrets(OLD)).opening())
    with pytest.raises(PeerRefused):
        node.receive(second)
    one = dialer(secrets(OLD))
    with pytest.raises(PeerRefused):
        one.receive(first)


@given(st.integers(0, 72), st.integers(1, 255))
def test_one_flipped_bit_is_noticed(position: int, flip: int) -> None:
    one, two = dialer(secrets(OLD, NEW)), listener(secrets(OLD))
    proof = one.receive(two.receive(one.opening()))
    assert isinstance(proof, bytes)
    assert len(proof) <= MAX_FRAME_BYTES
    changed = bytearray(proof)
    changed[position] ^= flip
    if position >= 41:  # The proof under the secret that this node does not know.
        two.receive(bytes(changed))
    else:
        with pytest.raises(PeerRefused):
            two.receive(bytes(changed))


def test_another_version_is_told_as_such() -> None:
    opening = bytearray(dialer(secrets(OLD)).opening())
    opening[4] = 9
    with pytest.raises(PeerRefused, match="version 9"):
        listener(secrets(OLD)).receive(bytes(opening))


def test_secrets_come_one_in_a_line() -> None:
    known = parse_secrets(f"\n  {NEW} \n{OLD}\n{NEW}\n")

    assert known.keys("peers") == secrets(NEW, OLD).keys("peers")
    assert known.keys("peers") != known.keys("decoys")
    assert NEW not in repr(known)
    assert len(secrets(new_secret(bytes(32))).keys("peers")) == 1


@pytest.mark.parametrize("text", ["", "short", "\n".join([OLD, NEW, OTHER]), "a b" * 20, "é" * 40])
def test_what_is_no_secret_is_one_sentence_that_does_not_show_it(text: str) -> None:
    with pytest.raises(QuorateError, match="secret") as raised:
        parse_secrets(text)

    assert text == "" or text not in str(raised.value)
