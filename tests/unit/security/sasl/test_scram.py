"""SCRAM, both sides: the exchange of RFC 7677, what is refused, and that nothing tells who is known."""

from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.security.decoys import Decoys
from quorate.security.principals import user
from quorate.security.sasl.outcomes import Challenge, LoginAccepted, LoginFailed, LoginRefused, LoginWork, Outcome
from quorate.security.sasl.scram import (
    MalformedScram,
    ScramLogin,
    ScramServer,
    ScramUsers,
    TokenSecret,
    escape_name,
    read_attributes,
    unescape_name,
)
from quorate.security.scram_credentials import ScramCredential, ScramMechanism, derive_credential

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
RFC_SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
TOKEN = TokenSecret(owner=user("owner"), hmac=b"\x01" * 64, expires_ms=5_000)
KNOWN = {
    (mechanism, name): derive_credential(mechanism, "pencil", RFC_SALT)
    for mechanism in (SHA_256, SHA_512)
    for name in ("user", "a,b=c", "Jürgen")
}


def find(mechanism: ScramMechanism, name: str) -> ScramCredential | None:
    return KNOWN.get((mechanism, name))


USERS = ScramUsers(
    find=find, find_token=lambda name: TOKEN if name == "token-id" else None, decoys=Decoys(b"d" * 32, {})
)


def server(mechanism: ScramMechanism = SHA_256) -> ScramServer:
    return ScramServer(mechanism, USERS, SERVER_NONCE)


def exchange(login: ScramLogin, mechanism: ScramMechanism = SHA_256) -> Outcome:
    side = server(mechanism)
    challenge = side.answer(login.first())
    if not isinstance(challenge, Challenge):
        return challenge
    proof = login.answer(challenge.token)
    assert proof is not None
    outcome = side.answer(proof)
    if isinstance(outcome, LoginWork):
        outcome = side.resume(outcome.run())
    if isinstance(outcome, LoginAccepted):
        assert login.answer(outcome.token) is None
    return outcome


def test_the_exchange_of_rfc_7677() -> None:
    login, side = ScramLogin(SHA_256, "user", "pencil", CLIENT_NONCE), server()

    assert login.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = side.answer(login.first())
    assert challenge == Challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert isinstance(challenge, Challenge)
    proof = login.answer(challenge.token)
    assert proof == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert proof is not None
    decision = side.answer(proof)
    assert decision == LoginAccepted(principal=user("user"), token=b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert isinstance(decision, LoginAccepted)
    assert login.answer(decision.token) is None


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("name", ["user", "a,b=c", "Jürgen"])
def test_who_knows_the_password_is_let_in(mechanism: ScramMechanism, name: str) -> None:
    outcome = exchange(ScramLogin(mechanism, name, "pencil", "abc"), mechanism)

    assert isinstance(outcome, LoginAccepted)
    assert outcome.principal == user(name)
    assert not outcome.by_token
    assert outcome.expires_ms is None


def test_who_does_not_is_told_the_same_as_one_whom_nobody_knows() -> None:
    wrong = exchange(ScramLogin(SHA_256, "user", "Pencil", "abc"))
    unknown = exchange(ScramLogin(SHA_256, "nobody", "pencil", "abc"))

    assert isinstance(wrong, LoginRefused)
    assert isinstance(unknown, LoginRefused)
    assert wrong.message is unknown.message is None


def test_an_unknown_user_gets_a_challenge_like_everyone_else_and_always_the_same() -> None:
    challenges = [server().answer(f"n,,n={name},r=abc".encode()) for name in ("nobody", "nobody", "noone", "user")]
    read = []
    for challenge in challenges:
        assert isinstance(challenge, Challenge)
        read.append(read_attributes(challenge.token.decode()))

    assert read[0] == read[1]
    assert read[0]["s"] != read[2]["s"]
    assert [each["i"] for each in read] == ["4096"] * 4
    other_mechanism = server(SHA_512).answer(b"n,,n=nobody,r=abc")
    assert isinstance(other_mechanism, Challenge)
    assert read[0]["s"] not in other_mechanism.token.decode()


def test_a_delegation_token_logs_its_owner_in() -> None:
    login = ScramLogin(SHA_512, "token-id", b64encode(TOKEN.hmac).decode(), "abc", by_token=True)

    assert login.first() == b"n,,n=token-id,r=abc,tokenauth=true"
    outcome = exchange(login, SHA_512)
    assert isinstance(outcome, LoginAccepted)
    assert outcome.principal == user("owner")
    assert outcome.by_token
    assert outcome.expires_ms == 5_000


def test_an_unknown_token_takes_as_much_work_and_says_as_little() -> None:
    side = server()
    challenge = side.answer(b"n,,n=other-id,r=abc,tokenauth=true")
    assert isinstance(challenge, Challenge)
    login = ScramLogin(SHA_256, "other-id", "x", "abc", by_token=True)
    proof = login.answer(challenge.token)
    assert proof is not None

    work = side.answer(proof)

    assert isinstance(work, LoginWork)
    outcome = side.resume(work.run())
    assert isinstance(outcome, LoginRefused)
    assert outcome.message is None


def test_a_token_is_no_user_and_a_user_no_token() -> None:
    for login in (
        ScramLogin(SHA_256, "token-id", b64encode(TOKEN.hmac).decode(), "abc"),
        ScramLogin(SHA_256, "user", "pencil", "abc", by_token=True),
    ):
        assert isinstance(exchange(login), LoginRefused)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n",
        b"n,,",
        b"n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"x,,n=user,r=abc",
        b"n,,r=abc,n=user",
        b"n,,n=user",
        b"n,,n=user,n=other,r=abc",
        b"n,,m=ext,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=user,r=a b",
        b"n,,n=user,r=",
        b"n,,n=us\0er,r=abc",
        b"n,b=x,n=user,r=abc",
        b"n,,n=\xff,r=abc",
        b"n,,n=user,r=abc,",
        b"n,,n=user,r=\xc3\xbc",
    ],
)
def test_a_first_message_that_is_none_is_refused(first: bytes) -> None:
    outcome = server().answer(first)

    assert isinstance(outcome, LoginRefused)
    assert outcome.message is None


def test_nobody_can_act_as_another() -> None:
    for name in ("user", "nobody"):
        outcome = server().answer(f"n,a=admin,n={name},r=abc".encode())
        assert isinstance(outcome, LoginRefused)
        assert outcome.message is not None
        assert "authorization id" in outcome.message
    assert isinstance(server().answer(b"n,a=user,n=user,r=abc"), Challenge)


def test_a_client_that_could_bind_the_channel_is_served_without() -> None:
    side = server()
    challenge = side.answer(b"y,,n=user,r=" + CLIENT_NONCE.encode())
    assert isinstance(challenge, Challenge)

    # What it proves has to be about that header; a man in the middle may have taken the offer away.
    proof = ScramLogin(SHA_256, "user", "pencil", CLIENT_NONCE).answer(challenge.token)
    assert proof is not None
    assert isinstance(side.answer(proof), LoginRefused)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"c=biws", b"c=eSws"),
        (b"c=biws", b"c=cD10bHMtdW5pcXVlLCw="),
        (b"c=biws", b"c=biw"),
        (b"c=biws", b"d=biws"),
        (b"r=abc", b"r=xbc"),
        (b"r=abc", b"r=abc1"),
        (b",p=", b",q="),
        (b",p=", b",p=AAAA"),
        (b"c=", b"\xff="),
        (b"r=abc", b"x=1,r=abc"),
    ],
)
def test_a_final_message_that_was_changed_is_refused(old: bytes, new: bytes) -> None:
    login, side = ScramLogin(SHA_256, "user", "pencil", "abc"), server()
    challenge = side.answer(login.first())
    assert isinstance(challenge, Challenge)
    proof = login.answer(challenge.token)
    assert proof is not None
    assert old in proof

    assert isinstance(side.answer(proof.replace(old, new, 1)), LoginRefused)


def test_a_recorded_proof_is_of_no_use_in_another_exchange() -> None:
    login, side = ScramLogin(SHA_256, "user", "pencil", "abc"), server()
    challenge = side.answer(login.first())
    assert isinstance(challenge, Challenge)
    proof = login.answer(challenge.token)
    assert proof is not None
    later = ScramServer(SHA_256, USERS, "anotherNonce")
    later.answer(login.first())

    assert isinstance(later.answer(proof), LoginRefused)


@given(st.binary(max_size=80), st.binary(max_size=200))
def test_no_message_makes_the_server_fail(first: bytes, final: bytes) -> None:
    assert isinstance(server().answer(first), LoginRefused | Challenge)
    side = server()
    side.answer(b"n,,n=user,r=abc")
    assert isinstance(side.answer(final), LoginRefused)


CHALLENGE = "r=abcdef,s=c2FsdA==,i=4096"


@pytest.mark.parametrize(
    "challenge",
    [
        "",
        "r=abc,s=c2FsdA==,i=4096",
        "r=xyz,s=c2FsdA==,i=4096",
        "r=abcdef,s=c2FsdA==,i=4095",
        "r=abcdef,s=c2FsdA==,i=99999999999",
        "r=abcdef,s=c2FsdA==,i=10000001",
        "r=abcdef,s=c2FsdA==,i=x",
        "r=abcdef,s=c2FsdA==",
        "r=abcdef,i=4096",
        "r=abcdef,s=?,i=4096",
        "e=unknown-user",
        "m=x,r=abcdef,s=c2FsdA==,i=4096",
    ],
)
def test_a_client_refuses_a_challenge_that_is_none_or_too_weak(challenge: str) -> None:
    with pytest.raises(LoginFailed):
        ScramLogin(SHA_256, "user", "pencil", "abc").answer(challenge.encode())


@pytest.mark.parametrize("final", ["", "v=", "v=AAAA", "e=invalid-proof", "x=1", "v=???", "\N{SNOWMAN}"])
def test_a_client_does_not_believe_a_server_that_cannot_prove_itself(final: str) -> None:
    login = ScramLogin(SHA_256, "user", "pencil", "abc")
    login.answer(CHALLENGE.encode())

    with pytest.raises(LoginFailed):
        login.answer(final.encode())


@given(st.text(min_size=1))
def test_names_survive_being_escaped(name: str) -> None:
    assert unescape_name(escape_name(name)) == name


def test_a_lone_equals_sign_is_no_name() -> None:
    with pytest.raises(MalformedScram):
        unescape_name("a=3B")


def test_secrets_are_not_shown() -> None:
    assert repr(USERS) == "ScramUsers(...)"
    assert repr(TOKEN) == "TokenSecret(owner=User:owner, ...)"
