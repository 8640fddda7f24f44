"""What is kept of a password: the vectors of RFC 7677, the bounds of Kafka, and no secret in sight."""

from base64 import b64decode

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.security.saslprep import is_prepared, saslprep
from quorate.security.scram_credentials import (
    ScramMechanism,
    check_iterations,
    check_new_password,
    check_password,
    derive_credential,
    new_salt,
    parse_new_user,
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


@pytest.mark.parametrize(
    ("text", "name", "password", "iterations"),
    [
        ("SCRAM-SHA-256=[name=alice,password=secret]", "alice", "secret", 4096),
        ("SCRAM-SHA-512=[name=bob,iterations=8192,password=a=b]", "bob", "a=b", 8192),
        ('SCRAM-SHA-512=[password="a,]b",name="c d"]', "c d", "a,]b", 4096),
    ],
)
def test_the_first_user_is_written_as_for_kafkas_storage_tool(
    text: str, name: str, password: str, iterations: int
) -> None:
    user = parse_new_user(text, SEED)

    assert user.name == name
    assert text.startswith(user.mechanism.mechanism_name)
    assert user.credential.iterations == iterations
    assert check_password(user.mechanism, user.credential, password)
    assert password not in repr(user)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SCRAM-SHA-256",
        "SCRAM-SHA-1=[name=alice,password=hidden]",
        "SCRAM-SHA-256=name=alice,password=hidden",
        "SCRAM-SHA-256=[name=alice]",
        "SCRAM-SHA-256=[password=hidden]",
        "SCRAM-SHA-256=[name=alice,password=hidden,iterations=1]",
        "SCRAM-SHA-256=[name=alice,password=hidden,iterations=x]",
        "SCRAM-SHA-256=[name=alice,password=hidden,password=hidden]",
        "SCRAM-SHA-256=[name=alice,password=hidden,saltt=x]",
        'SCRAM-SHA-256=[name=alice,password="hidden]',
        'SCRAM-SHA-256=[name=alice,password="hidden"x]',
        "SCRAM-SHA-256=[name=alice,hidden]",
        "SCRAM-SHA-256=[name=alice,password=ﬁhidden]",
    ],
)
def test_what_is_no_user_is_one_sentence_that_shows_no_password(text: str) -> None:
    with pytest.raises(QuorateError) as raised:
        parse_new_user(text, SEED)

    assert "hidden" not in str(raised.value)
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
