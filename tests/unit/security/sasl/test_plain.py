"""PLAIN: the server's decisions, and what the client is told."""

import pytest

from quorate.security.principals import user
from quorate.security.sasl.outcomes import INVALID_CREDENTIALS, LoginAccepted, LoginRefused, LoginWork, Outcome
from quorate.security.sasl.plain import PlainLogin, PlainPasswords, PlainServer, StoredPasswords
from quorate.security.scram_credentials import ScramCredential, ScramMechanism, derive_credential

PASSWORDS = PlainPasswords({"alice": "secret", "bob": "x" * 100, "empty": ""})
SHA_512 = ScramMechanism.SCRAM_SHA_512
STORED = derive_credential(SHA_512, "secret", b"salt")
DECOY = SHA_512, derive_credential(SHA_512, "decoy", b"pepper")


def decide(token: bytes, passwords: PlainPasswords | StoredPasswords = PASSWORDS) -> Outcome:
    server = PlainServer(passwords)
    outcome = server.answer(token)
    return server.resume(outcome.run()) if isinstance(outcome, LoginWork) else outcome


def test_the_right_password_is_accepted() -> None:
    assert decide(PlainLogin("alice", "secret").first()) == LoginAccepted(principal=user("alice"))
    assert decide(b"alice\0alice\0secret") == LoginAccepted(principal=user("alice"))
    assert decide(b"\0bob\0" + b"x" * 100) == LoginAccepted(principal=user("bob"))
    assert PlainLogin("alice", "secret").answer(b"") is None


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0wrong", INVALID_CREDENTIALS),
        (b"\0nobody\0secret", INVALID_CREDENTIALS),
        (b"\0alice\0secre", INVALID_CREDENTIALS),
        (b"\0Alice\0secret", INVALID_CREDENTIALS),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0empty\0", "Authentication failed: password not specified"),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice\0secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 1000, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\xff\0x", "Authentication failed: Invalid username or password"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_anything_else_is_refused_in_apache_kafkas_words(token: bytes, message: str) -> None:
    outcome = decide(token)

    assert isinstance(outcome, LoginRefused)
    assert outcome.message == message
    assert "secret" not in outcome.reason


def test_another_name_is_only_noticed_with_the_right_password() -> None:
    outcome = decide(b"bob\0alice\0wrong")

    assert isinstance(outcome, LoginRefused)
    assert outcome.message == INVALID_CREDENTIALS


def find(name: str) -> tuple[ScramMechanism, ScramCredential] | None:
    return (SHA_512, STORED) if name == "alice" else None


def test_passwords_of_scram_users_are_checked_by_a_worker() -> None:
    stored = StoredPasswords(find, lambda _: DECOY)

    assert isinstance(PlainServer(stored).answer(b"\0alice\0secret"), LoginWork)
    assert decide(b"\0alice\0secret", stored) == LoginAccepted(principal=user("alice"))
    for token in (b"\0alice\0wrong", b"\0nobody\0secret", b"\0nobody\0decoy"):
        outcome = decide(token, stored)
        assert isinstance(outcome, LoginRefused)
        assert outcome.message == INVALID_CREDENTIALS


def test_unknown_users_take_as_much_work_as_known_ones() -> None:
    assert isinstance(PlainServer(StoredPasswords(find, lambda _: DECOY)).answer(b"\0nobody\0secret"), LoginWork)


def test_passwords_are_not_shown() -> None:
    assert repr(PASSWORDS) == "PlainPasswords(3 users)"
    assert "secret" not in repr(PlainServer(PASSWORDS))
