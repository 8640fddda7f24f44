"""Access tokens: out of files, of an identity provider on loopback, and for how long one is used."""

from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from quorate.client.access_tokens import FetchedToken, SharedToken, TokenSource, fetch_by_client_credentials
from quorate.client.errors import AuthenticationFailed, Disconnected, TokenRefused, TokenUnavailable
from quorate.client.security_config import SaslMechanism, SecurityConfig
from quorate.kernel.address import Address
from quorate.security.listeners import SecurityProtocol
from tests.unit.client.clock import FakeClock
from tests.unit.client.token_provider import providing

BROKER = Address("broker", 9092)
SECRET = "the client's secret"


def security(**oauth: Any) -> SecurityConfig:
    return SecurityConfig(protocol=SecurityProtocol.SASL_PLAINTEXT, sasl_mechanism=SaslMechanism.OAUTHBEARER, **oauth)


def with_endpoint(url: str, **oauth: Any) -> SecurityConfig:
    return security(oauth_token_endpoint=url, oauth_client_id="backup", oauth_client_secret=SECRET, **oauth)


def test_a_token_is_asked_for_with_id_and_secret() -> None:
    with providing() as provider:
        token = fetch_by_client_credentials(with_endpoint(provider.url, oauth_scope="kafka read"))

    assert token == FetchedToken(text="t0ken", lifetime_ms=300_000)
    [(authorization, form)] = provider.asked
    assert b64decode(authorization.removeprefix("Basic ")).decode() == f"backup:{SECRET}"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka read"]}


def test_id_and_secret_are_encoded_where_that_is_asked_for() -> None:
    with providing() as provider:
        fetch_by_client_credentials(with_endpoint(provider.url, oauth_header_urlencode=True))

    assert b64decode(provider.asked[0][0].removeprefix("Basic ")) == b"backup:the+client%27s+secret"


@pytest.mark.parametrize(
    ("status", "answer", "kind", "sentence"),
    [
        (401, {"error": "invalid_client", "error_description": "no\nsuch client"}, TokenRefused, "401: invalid_client"),
        (400, b"<html>", TokenRefused, "answered 400$"),
        (503, {}, TokenUnavailable, "answered 503$"),
        (429, {}, TokenUnavailable, "answered 429$"),
        (200, b"<html>", TokenRefused, "something else than a JSON object"),
        (200, {"token": "x"}, TokenRefused, "without an access_token"),
        (200, {"access_token": ""}, TokenRefused, "without an access_token"),
    ],
)
def test_what_the_provider_says_is_one_sentence_without_the_secret(
    status: int, answer: Any, kind: type[Exception], sentence: str
) -> None:
    with providing() as provider:
        provider.status, provider.answer = status, answer
        with pytest.raises(kind, match=sentence) as caught:
            fetch_by_client_credentials(with_endpoint(provider.url))

    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


def test_the_secret_follows_no_redirect() -> None:
    with providing() as other, providing() as provider:
        provider.status, provider.headers = 307, {"Location": other.url}
        with pytest.raises(TokenRefused, match="answered 307"):
            fetch_by_client_credentials(with_endpoint(provider.url))

    assert other.asked == []


def test_a_provider_that_is_not_there_may_come_back() -> None:
    with pytest.raises(TokenUnavailable, match="cannot be reached"):
        fetch_by_client_credentials(with_endpoint("http://127.0.0.1:1/token"))


@pytest.mark.parametrize(
    ("oauth", "key"),
    [
        ({}, "oauth_token_location"),
        ({"oauth_token_location": "x", "oauth_token_endpoint": "https://idp/token"}, "oauth_token_location"),
        ({"oauth_token_endpoint": "https://idp/token"}, "oauth_client_id"),
        ({"oauth_token_endpoint": "http://idp.example/token"}, "oauth_token_endpoint"),
        ({"oauth_token_endpoint": "http://localhost.example/token"}, "oauth_token_endpoint"),
        ({"oauth_token_endpoint": "ftp://127.0.0.1/token"}, "oauth_token_endpoint"),
        ({"oauth_token_endpoint": "https:///token"}, "oauth_token_endpoint"),
        ({"oauth_token_location": "x", "oauth_extensions": "alone"}, "oauth_extensions"),
        ({"oauth_token_location": "x", "aws_region": "eu-central-1"}, "aws_region"),
    ],
)
def test_settings_that_cannot_be_meant_are_named(oauth: dict[str, str], key: str) -> None:
    assert key in [found for found, _ in security(**oauth).problems()]


def test_settings_that_can_be_meant_have_no_problems() -> None:
    assert not list(with_endpoint("https://idp.example/token", oauth_extensions="logicalCluster=a,pool=b").problems())
    assert not list(security(oauth_token_location="/run/token").problems())


def test_a_file_is_read_for_each_login(tmp_path: Path, clock: FakeClock) -> None:
    file = tmp_path / "token"
    source = TokenSource(security(oauth_token_location=str(file)), clock)
    file.write_text("first\n")
    assert source.token_for(BROKER) == "first"
    file.write_text("second")
    assert source.token_for(BROKER) == "second"

    file.write_text(" \n")
    with pytest.raises(AuthenticationFailed, match="token holds no token"):
        source.token_for(BROKER)
    file.unlink()
    with pytest.raises(AuthenticationFailed, match="cannot be read: No such file"):
        source.token_for(BROKER)


def test_what_a_provider_refuses_is_not_tried_again_and_its_silence_is(clock: FakeClock) -> None:
    with providing() as provider:
        provider.status = 401
        with pytest.raises(AuthenticationFailed, match="authentication with broker:9092 failed: http://127"):
            TokenSource(with_endpoint(provider.url), clock).token_for(BROKER)
        provider.status = 500
        with pytest.raises(Disconnected, match="no access token for broker:9092: http://127"):
            TokenSource(with_endpoint(provider.url), clock).token_for(BROKER)


class Fetches:
    def __init__(self) -> None:
        self.count = 0
        self.lifetime_ms: int | None = 10_000
        self.is_down = False

    def __call__(self) -> FetchedToken:
        if self.is_down:
            raise TokenUnavailable("down")
        self.count += 1
        return FetchedToken(text=f"token {self.count}", lifetime_ms=self.lifetime_ms)


def test_a_token_is_shared_until_most_of_its_life_is_over(clock: FakeClock) -> None:
    shared = SharedToken(fetches := Fetches(), clock)
    assert [shared.get(), shared.get()] == ["token 1", "token 1"]
    clock.advance(7_999)
    assert shared.get() == "token 1"
    clock.advance(1)
    assert shared.get() == "token 2"
    assert fetches.count == 2


def test_while_the_provider_is_away_the_old_token_counts_to_its_end(clock: FakeClock) -> None:
    shared = SharedToken(fetches := Fetches(), clock)
    shared.get()
    fetches.is_down = True
    clock.advance(9_999)
    assert shared.get() == "token 1"
    clock.advance(1)
    with pytest.raises(TokenUnavailable):
        shared.get()
    fetches.is_down = False
    assert shared.get() == "token 2"


def test_a_token_of_unknown_life_is_used_once(clock: FakeClock) -> None:
    shared = SharedToken(fetches := Fetches(), clock)
    fetches.lifetime_ms = None
    assert [shared.get(), shared.get()] == ["token 1", "token 2"]


def test_tokens_and_secrets_are_not_shown() -> None:
    assert "t0ken" not in repr(FetchedToken(text="t0ken", lifetime_ms=1))
    assert SECRET not in repr(with_endpoint("https://idp.example/token"))
