"""What a stranger's message costs before anybody has logged in: little more than its bytes, whatever is in it."""

import tracemalloc
from collections.abc import Callable
from itertools import product
from string import ascii_letters

import pytest

from quorate.security.access_tokens import AccessToken, InvalidToken
from quorate.security.decoys import Decoys
from quorate.security.sasl.bearer import BearerServer
from quorate.security.sasl.outcomes import LoginRefused, Mechanism, Outcome
from quorate.security.sasl.plain import PlainPasswords, PlainServer
from quorate.security.sasl.scram import ScramServer, ScramUsers
from quorate.security.sasl.session import DEFAULT_MAX_RECEIVE_BYTES
from quorate.security.scram_credentials import ScramMechanism

SIZE = DEFAULT_MAX_RECEIVE_BYTES - 100
LETTERS = ["".join(letters) for letters in product(ascii_letters, repeat=3)][: SIZE // 6]
NOBODY = ScramUsers(find=lambda mechanism, name: None, find_token=lambda token_id: None, decoys=Decoys(b"k" * 32, {}))


def scram() -> Mechanism:
    return ScramServer(ScramMechanism.SCRAM_SHA_512, NOBODY, "n" * 40)


def bearer() -> Mechanism:
    def refuse(token: str) -> AccessToken:
        raise InvalidToken("no")

    return BearerServer(refuse)


def plain() -> Mechanism:
    return PlainServer(PlainPasswords({"alice": "secret"}))


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        (scram, b"n,,n=" + b"a" * SIZE + b",r=abc"),
        (scram, b"n,,n=" + b"=2C" * (SIZE // 3) + b",r=abc"),
        (scram, b"n,a=" + b"a" * SIZE + b",n=a,r=abc"),
        (scram, b"n,,n=a,r=" + b"r" * SIZE),
        (scram, b"n,,n=a,r=b," + ",".join(f"{each}=x" for each in LETTERS).encode()),
        (scram, b"n,,n=a" + b"," * SIZE),
        (bearer, b"n,a=" + b"a" * SIZE + b",\x01auth=Bearer x\x01\x01"),
        (bearer, b"n,,\x01" + "\x01".join(f"{each}=x" for each in LETTERS).encode() + b"\x01auth=Bearer x\x01\x01"),
        (bearer, b"n,,\x01auth=Bearer " + b"x" * SIZE + b"\x01\x01"),
        (plain, b"\0" * SIZE),
        (plain, b"\0" + b"\x01" * SIZE + b"\0x"),
    ],
)
def test_no_message_takes_many_times_its_memory(mechanism: Callable[[], Mechanism], message: bytes) -> None:
    """And so no time to speak of: what took a tenth of a second of the loop took 150 bytes for each of these."""
    server = mechanism()
    tracemalloc.start()
    try:
        server.answer(message)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 16 * len(message)


@pytest.mark.parametrize("count", [17, 10_000])
def test_a_scram_message_with_more_attributes_than_any_client_sends_is_refused(count: int) -> None:
    extensions = ",".join(f"{each}=x" for each in LETTERS[:count])
    outcome: Outcome = scram().answer(f"n,,n=a,r=b,{extensions}".encode())
    assert outcome == LoginRefused(reason="SCRAM-SHA-512: the message has more than 16 attributes")


@pytest.mark.parametrize("name", ["=3=2CD", "=", "a=b", "==2C", "=2c"])
def test_an_escape_that_is_none_does_not_become_one(name: str) -> None:
    outcome = scram().answer(f"n,,n={name},r=b".encode())
    assert outcome == LoginRefused(reason="SCRAM-SHA-512: the name has an equals sign that is not escaped")
