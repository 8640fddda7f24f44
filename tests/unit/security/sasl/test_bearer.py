"""OAUTHBEARER: its frames, both sides, with and without a token that is valid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.security.access_tokens import AccessToken, InvalidToken
from quorate.security.principals import user
from quorate.security.sasl.bearer import BearerLogin, BearerServer
from quorate.security.sasl.outcomes import Challenge, LoginAccepted, LoginFailed, LoginRefused


def verify(token: str) -> AccessToken:
    if token == "good.token":
        return AccessToken(principal_name="alice", expires_ms=9_000)
    raise InvalidToken("its key is not known", unknown_key=token == "new.key")


def test_a_valid_token_is_accepted() -> None:
    login = BearerLogin("good.token", {"logicalCluster": "lkc-1"})

    assert login.first() == b"n,,\x01auth=Bearer good.token\x01logicalCluster=lkc-1\x01\x01"
    assert BearerServer(verify).answer(login.first()) == LoginAccepted(principal=user("alice"), expires_ms=9_000)
    assert login.answer(b"") is None


def test_another_token_is_refused_after_the_client_has_read_why() -> None:
    login, server = BearerLogin("bad"), BearerServer(verify)
    challenge = server.answer(login.first())

    assert challenge == Challenge(b'{"status":"invalid_token"}')
    assert isinstance(challenge, Challenge)
    acknowledgement = login.answer(challenge.token)
    assert acknowledgement == b"\x01"
    refusal = server.answer(acknowledgement)
    assert refusal == LoginRefused(
        reason="OAUTHBEARER: the token is refused: its key is not known", message='{"status":"invalid_token"}'
    )
    assert not server.wants_keys
    with pytest.raises(LoginFailed, match="invalid_token"):
        login.answer(b"")


def test_a_refused_token_is_not_followed_by_another() -> None:
    server = BearerServer(verify)
    server.answer(BearerLogin("bad").first())

    assert isinstance(server.answer(BearerLogin("good.token").first()), LoginRefused)


def test_a_key_that_is_not_known_yet_is_wanted() -> None:
    server = BearerServer(verify)
    server.answer(BearerLogin("new.key").first())

    assert server.wants_keys


def test_who_asks_to_be_another_is_refused() -> None:
    refusal = BearerServer(verify).answer(b"n,a=admin,\x01auth=Bearer good.token\x01\x01")

    assert isinstance(refusal, LoginRefused)
    assert refusal.message is not None
    assert "authorization id" in refusal.message
    accepted = BearerServer(verify).answer(b"n,a=alice,\x01auth=bEaReR  good.token\x01\x01")
    assert isinstance(accepted, LoginAccepted)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer good.token",
        b"y,,\x01auth=Bearer good.token\x01\x01",
        b"p=x,,\x01auth=Bearer good.token\x01\x01",
        b"n,,\x01auth=Basic good.token\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer good.token\x01auth=Bearer good.token\x01\x01",
        b"n,,\x01auth=Bearer good.token\x01k3y=x\x01\x01",
        b"n,,\x01host=x\x01\x01",
        b"n,a=a=b,\x01auth=Bearer good.token\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_what_is_not_of_its_form_is_refused_at_once(message: bytes) -> None:
    refusal = BearerServer(verify).answer(message)

    assert isinstance(refusal, LoginRefused)
    assert refusal.message is None


@given(st.binary(max_size=200))
def test_no_message_makes_the_server_fail(message: bytes) -> None:
    assert isinstance(BearerServer(verify).answer(message), LoginRefused)
    assert isinstance(BearerServer(verify).answer(b"n,," + message), LoginRefused | Challenge)


@pytest.mark.parametrize(
    ("token", "extensions"), [("a\x01b", {}), ("é", {}), ("ok", {"a b": "x"}), ("ok", {"a": "\x01"})]
)
def test_what_cannot_be_sent_is_not(token: str, extensions: dict[str, str]) -> None:
    with pytest.raises(LoginFailed):
        BearerLogin(token, extensions)
