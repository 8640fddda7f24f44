"""A login by the name of its mechanism."""

import pytest

from quorate.kernel.errors import QuorateError
from quorate.security.jaas import parse_jaas
from quorate.security.sasl.bearer import BearerLogin
from quorate.security.sasl.logins import LoginCredentials, credentials_of, new_login
from quorate.security.sasl.outcomes import SaslLogin

ALICE = LoginCredentials(username="alice", password="secret", access_token="token", extensions={"a": "b"})


@pytest.mark.parametrize(
    ("mechanism", "first"),
    [
        ("PLAIN", b"\0alice\0secret"),
        ("SCRAM-SHA-256", b"n,,n=alice,r=nonce"),
        ("SCRAM-SHA-512", b"n,,n=alice,r=nonce"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer token\x01a=b\x01\x01"),
    ],
)
def test_each_mechanism_has_a_first_token(mechanism: str, first: bytes) -> None:
    login: SaslLogin = new_login(mechanism, ALICE, "nonce")

    assert login.first() == first


def test_jaas_options_are_credentials() -> None:
    entry = parse_jaas(
        'org.ScramLoginModule required username="id" password="hmac" tokenauth="true" extension_cluster="lkc";'
    )
    credentials = credentials_of(entry)

    assert credentials == LoginCredentials(username="id", password="hmac", by_token=True, extensions={"cluster": "lkc"})
    assert new_login("SCRAM-SHA-256", credentials, "n").first() == b"n,,n=id,r=n,tokenauth=true"
    assert "hmac" not in repr(credentials)
    assert isinstance(new_login("OAUTHBEARER", ALICE, "n"), BearerLogin)


@pytest.mark.parametrize(
    ("mechanism", "credentials", "message"),
    [
        ("GSSAPI", ALICE, "'GSSAPI' is not one of PLAIN, SCRAM-SHA-256"),
        ("PLAIN", LoginCredentials(username="alice"), "needs a username and a password"),
        ("SCRAM-SHA-256", LoginCredentials(password="hidden"), "needs a username and a password"),
        ("OAUTHBEARER", LoginCredentials(username="a", password="hidden"), "needs an access token"),
    ],
)
def test_what_is_missing_is_one_sentence(mechanism: str, credentials: LoginCredentials, message: str) -> None:
    with pytest.raises(QuorateError, match=message) as raised:
        new_login(mechanism, credentials, "nonce")

    assert "hidden" not in str(raised.value)
