"""What of a node's certificate and authorities can be used, what both ends see, and what counts after a change."""

import ssl

import pytest

from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.security.peer_tls import PeerTls
from tests.peers.node_certificates import NodeAuthority, dialling_context

A, B = NodeId(7), NodeId(100)
OURS, OTHERS = NodeAuthority(), NodeAuthority()
OWN = OURS.issue(A)
KEY, CHAIN = OWN.split(b"-----BEGIN CERTIFICATE-----")[0], b"-----BEGIN CERTIFICATE-----" + OWN.split(b"BEGIN CERT")[1]


def tls(node_id: NodeId, *authorities: NodeAuthority) -> PeerTls:
    """Its certificate is of the first."""
    return PeerTls(authorities[0].issue(node_id), b"".join(each.certificate for each in authorities), node_id)


@pytest.mark.parametrize(
    ("own", "authorities", "problem"),
    [
        pytest.param(OURS.issue(B), OURS.certificate, "the certificate is of node 100, this is node 7", id="another's"),
        pytest.param(OURS.issue(None), OURS.certificate, "unsuitable certificate purpose", id="a client's"),
        pytest.param(OURS.key_and_chain, OURS.certificate, "the certificate names no node", id="an authority's"),
        pytest.param(OTHERS.issue(A), OURS.certificate, "unable to get local issuer", id="another authority"),
        pytest.param(OURS.issue(A, 3), OURS.certificate, "certificate has expired", id="expired"),
        pytest.param(OURS.issue(A, -3), OURS.certificate, "certificate is not yet valid", id="not yet valid"),
        pytest.param(KEY + OURS.issue(A).split(KEY[-30:])[-1], OURS.certificate, "private key", id="another key"),
        pytest.param(b"", OURS.certificate, "it has not the private key and the certificate", id="empty"),
        pytest.param(OWN[:-40], OURS.certificate, "it has not the private key and the certificate", id="cut off"),
        pytest.param(OWN, b"", "peer_ca_file: it has no certificates in PEM", id="no authority"),
        pytest.param(OWN, b"\xff\xfe", "peer_ca_file: it has no certificates in PEM", id="binary"),
        pytest.param(OWN, KEY, "peer_ca_file: it has no certificates in PEM", id="a key"),
    ],
)
def test_what_others_would_refuse_is_refused_where_it_is_wrong(own: bytes, authorities: bytes, problem: str) -> None:
    with pytest.raises(QuorateError, match=problem) as raised:
        PeerTls(own, authorities, A)
    assert str(raised.value).startswith(("peer_certificate_file: ", "peer_ca_file: "))
    assert "\n" not in str(raised.value)


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_a_password() -> None:
    encrypted = OWN.replace(b"BEGIN PRIVATE", b"BEGIN ENCRYPTED PRIVATE")
    with pytest.raises(QuorateError, match="peer_certificate_file: its key is encrypted"):
        PeerTls(encrypted, OURS.certificate, A)


def shake_hands(dialling: ssl.SSLContext, listening: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    to_dialler, to_listener = ssl.MemoryBIO(), ssl.MemoryBIO()
    dialler = dialling.wrap_bio(to_dialler, to_listener)
    listener = listening.wrap_bio(to_listener, to_dialler, server_side=True)
    waiting = [dialler, listener]
    for _ in range(10):
        for end in tuple(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert not waiting
    return dialler, listener


def test_both_ends_see_which_node_the_other_one_is_and_the_same_channel() -> None:
    a, b = tls(A, OURS), tls(B, OURS)
    dialler, listener = shake_hands(a.dialling, b.listening)
    of_b, of_a = a.shown_to_dialler(dialler), b.shown_to_listener(listener)

    assert (of_a.node_id, of_b.node_id) == (A, B)
    assert of_a.channel == of_b.channel
    assert dialler.version() == "TLSv1.3"
    other_way = b.shown_to_dialler(shake_hands(b.dialling, a.listening)[0])
    assert other_way.channel != of_a.channel


@pytest.mark.parametrize("dialling", [dialling_context(None), dialling_context(OTHERS.issue(B))])
def test_who_shows_no_certificate_of_the_authority_is_not_listened_to(dialling: ssl.SSLContext) -> None:
    with pytest.raises(ssl.SSLError):
        shake_hands(dialling, tls(A, OURS).listening)


def test_what_was_shown_counts_as_long_as_its_authority_does() -> None:
    a, b = tls(A, OURS), tls(B, OURS)
    shown = b.shown_to_listener(shake_hands(a.dialling, b.listening)[1])

    assert tls(B, OURS).uphold(shown)
    assert tls(B, OTHERS, OURS).uphold(shown)
    assert not tls(B, OTHERS).uphold(shown)  # Of the same name.


def test_nothing_is_resumed() -> None:
    a, b = tls(A, OURS), tls(B, OURS)
    dialler, listener = shake_hands(a.dialling, b.listening)
    listener.write(b"x")
    dialler.read(1)
    assert dialler.session is None or not dialler.session.has_ticket


def test_neither_keys_nor_certificates_are_shown() -> None:
    assert repr(tls(A, OURS, OTHERS)) == "PeerTls(2 authorities)"
