"""What is kept of a password: the vectors of RFC 7677, the bounds of Kafka, and no secret in sight."""

from base64 import b64decode

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.security.scram_credentials import (
    ScramMechanism,
    check_iterations,
    check_new_password,
    check_new_user_name,
    check_password,
    derive_credential,
    is_prepared,
    new_salt,
    saslprep,
    scram_mechanism,
)

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SEED = bytes(range(32))


def test_the_keys_are_those_of_rfc_7677() -> None:
    credential = derive_credential(SHA_256, "pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)

    assert credential.stored_key == b64decode("WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=")
    assert credential.server_key == b64decode("wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=")


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_a_password_is_checked_without_being_kept(mechanism: ScramMechanism) -> None:
    credential = derive_credential(mechanism, "geheim", b"salt", 4096)

    assert check_password(mechanism, credential, "geheim")
    assert not check_password(mechanism, credential, "Geheim")
    assert len(credential.stored_key) == len(credential.server_key) == mechanism.key_bytes
    shown = f"{credential!r} {credential}"
    assert shown == "ScramCredential(iterations=4096, ...) ScramCredential(iterations=4096, ...)"


def test_mechanisms_have_kafkas_names_and_codes() -> None:
    assert scram_mechanism("SCRAM-SHA-512") is SHA_512
    assert SHA_256.mechanism_name == "SCRAM-SHA-256"
    assert (SHA_256, SHA_512) == (1, 2)
    assert ScramMechanism(9) is ScramMechanism.UNKNOWN
    assert scram_mechanism("UNKNOWN") is None


@pytest.mark.parametrize("iterations", [4_096, 8_192, 16_384])
def test_iterations_within_kafkas_bounds(iterations: int) -> None:
    check_iterations(iterations)


@pytest.mark.parametrize(("iterations", "message"), [(4_095, "Too few"), (0, "Too few"), (16_385, "Too many")])
def test_iterations_outside_of_them(iterations: int, message: str) -> None:
    with pytest.raises(KafkaError, match=f"^{message} iterations$") as raised:
        check_iterations(iterations)

    assert raised.value.code is ErrorCode.UNACCEPTABLE_CREDENTIAL


def test_salts_look_like_those_of_kafkas_tools() -> None:
    salt = new_salt(SEED)

    assert 20 <= len(salt) <= 26
    assert salt.decode().isalnum()
    assert salt != new_salt(bytes(reversed(SEED)))


@pytest.mark.parametrize("name", ["alice", "a b", "with,comma=and\\", "müller", "User:x", "x" * 255, "日本"])
def test_names_that_all_clients_send_alike_are_good(name: str) -> None:
    check_new_user_name(name)


@pytest.mark.parametrize(
    "name", ["", " ", " alice", "alice\n", "a\nb", "a\0b", "ﬁ", "a\u00a0b", "\udcff", "\ud83d\ude00x\x7f", "x" * 256]
)
def test_names_that_some_clients_would_change_are_refused_in_one_line(name: str) -> None:
    with pytest.raises(QuorateError) as raised:
        check_new_user_name(name)

    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("", ""),
        ("\u0627\u0031\u0628", "\u0627\u0031\u0628"),
        ("pässwörd", "pässwörd"),
    ],
)
def test_saslprep_makes_spellings_the_same(text: str, expected: str) -> None:
    """Most of these are the examples of RFC 4013."""
    assert saslprep(text) == expected
    assert is_prepared(text) is (text == expected)


@pytest.mark.parametrize("text", ["\u0007", "\u0627\u0031", "a\u0627", "\ue000", "\ufffd", "\U0001f600", "\u200e"])
def test_saslprep_refuses_what_it_must(text: str) -> None:
    with pytest.raises(ValueError, match=r"may not be in it|mixes letters|begins or ends"):
        saslprep(text)
    assert not is_prepared(text)


@pytest.mark.parametrize("password", ["", "tab\there", "a\u00a0b", "\uff41"])
def test_a_password_that_clients_send_in_two_ways_is_not_chosen(password: str) -> None:
    with pytest.raises(QuorateError):
        check_new_password(password)
    check_new_password("correct horse, battery=staple €")
