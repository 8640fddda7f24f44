"""Delegation tokens: their secrets, who may ask about them, and whom they are shown to."""

import msgspec
import pytest

from quorate.security.delegation_token import (
    DelegationToken,
    TokenKeys,
    is_described_to,
    may_ask_about_tokens,
)
from quorate.security.listeners import SecurityProtocol
from quorate.security.principals import ANONYMOUS, KafkaPrincipal, user

ALICE, BOB, EVE, CARL = user("alice"), user("bob"), user("eve"), user("carl")
TOKEN = DelegationToken(
    token_id="id", owner=ALICE, requester=BOB, renewers=(EVE,), issued_ms=0, max_ms=100, expires_ms=50
)
TOKENS = {"id": TOKEN}
KEYS = TokenKeys("master")


def test_the_secret_is_an_hmac_of_the_id_under_the_master_key() -> None:
    assert len(KEYS.hmac_of("id")) == 64
    assert KEYS.hmac_of("id") == TokenKeys("master").hmac_of("id")
    assert KEYS.hmac_of("id") != TokenKeys("other").hmac_of("id")
    assert KEYS.hmac_of("id") != KEYS.hmac_of("other")
    assert repr(KEYS) == "TokenKeys(...)"


def test_a_token_is_found_by_its_secret() -> None:
    assert KEYS.find(TOKENS, KEYS.hmac_of("id")) is TOKEN
    assert KEYS.find(TOKENS, b"x" * 64) is None
    assert KEYS.find(TOKENS, b"") is None
    assert KEYS.find({}, KEYS.hmac_of("id")) is None
    assert KEYS.find(TOKENS, KEYS.hmac_of("id")) is TOKEN


def test_each_secret_is_computed_once_however_often_one_is_looked_for() -> None:
    keys = TokenKeys("key")
    computed: list[str] = []
    of = keys._hmac

    def counted(token_id: str) -> bytes:
        computed.append(token_id)
        return of(token_id)

    keys._hmac = counted
    tokens = {f"id-{number}": msgspec.structs.replace(TOKEN, token_id=f"id-{number}") for number in range(100)}
    for _ in range(3):
        assert keys.find(tokens, b"a guess") is None
    assert len(computed) == 100
    more = tokens | {"another": msgspec.structs.replace(TOKEN, token_id="another")}
    del more["id-7"]
    assert keys.find(more, of("another")) is more["another"]
    assert keys.find(more, of("id-7")) is None
    assert computed[100:] == ["another"]


def test_a_token_logs_in_while_it_has_not_expired() -> None:
    secret = KEYS.login_secret(TOKENS, "id", 50)

    assert secret is not None
    assert (secret.owner, secret.hmac, secret.expires_ms) == (ALICE, KEYS.hmac_of("id"), 50)
    assert KEYS.login_secret(TOKENS, "id", 51) is None
    assert KEYS.login_secret(TOKENS, "other", 0) is None


@pytest.mark.parametrize(
    ("protocol", "principal", "by_token", "expected"),
    [
        (SecurityProtocol.SASL_SSL, ALICE, False, True),
        (SecurityProtocol.SASL_PLAINTEXT, ALICE, False, True),
        (SecurityProtocol.SSL, ALICE, False, True),
        (SecurityProtocol.SSL, ANONYMOUS, False, False),
        (SecurityProtocol.PLAINTEXT, ANONYMOUS, False, False),
        (SecurityProtocol.SASL_SSL, ALICE, True, False),
    ],
)
def test_who_may_ask_about_tokens(
    protocol: SecurityProtocol, principal: KafkaPrincipal, by_token: bool, expected: bool
) -> None:
    assert may_ask_about_tokens(protocol, principal, by_token=by_token) is expected


@pytest.mark.parametrize(
    ("requester", "owners", "is_allowed", "expected"),
    [
        (ALICE, None, False, True),
        (BOB, None, False, True),
        (EVE, None, False, True),
        (CARL, None, False, False),
        (CARL, None, True, True),
        (CARL, [ALICE], True, True),
        (CARL, [EVE], True, True),
        (CARL, [CARL], True, False),
        (ALICE, [CARL], False, False),
        (ALICE, [], False, False),
    ],
)
def test_whom_a_token_is_described_to(
    requester: KafkaPrincipal, owners: list[KafkaPrincipal] | None, is_allowed: bool, expected: bool
) -> None:
    assert is_described_to(TOKEN, requester, owners, lambda _: is_allowed) is expected
