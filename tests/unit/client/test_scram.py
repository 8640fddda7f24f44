"""SCRAM by the test vectors of its RFCs, and against servers that cheat."""

import pytest

from quorate.client.connections.pool import ScramClient, ScramError

RFC_5802 = {
    "hash_name": "sha1",
    "nonce": "fyko+d2lbbFgONRv9qkxdawL",
    "first": b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
    "challenge": b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
    "final": b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    "proof": b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
}
RFC_7677 = {
    "hash_name": "sha256",
    "nonce": "rOprNGfwEbeRWgbNEkqO",
    "first": b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    "challenge": b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    "final": (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    ),
    "proof": b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
}


@pytest.mark.parametrize("vector", [RFC_5802, RFC_7677], ids=["RFC 5802", "RFC 7677"])
def test_the_vectors_of_the_rfcs(vector: dict[str, str | bytes]) -> None:
    client = ScramClient(str(vector["hash_name"]), "user", "pencil", str(vector["nonce"]))
    assert client.first_message() == vector["first"]
    assert client.final_message(bytes(vector["challenge"])) == vector["final"]  # type: ignore[arg-type]
    client.verify(bytes(vector["proof"]))  # type: ignore[arg-type]


def answered() -> ScramClient:
    client = ScramClient("sha256", "user", "pencil", str(RFC_7677["nonce"]))
    client.final_message(bytes(RFC_7677["challenge"]))  # type: ignore[arg-type]
    return client


@pytest.mark.parametrize("server_final", [b"v=AAAA", b"v=", b"", b"v=!!", b"e=other-error", b"\xff"], ids=repr)
def test_a_server_that_cannot_prove_itself_is_refused(server_final: bytes) -> None:
    with pytest.raises(ScramError):
        answered().verify(server_final)


def test_a_proof_before_the_challenge_is_refused() -> None:
    with pytest.raises(ScramError):
        ScramClient("sha256", "user", "pencil", "nonce").verify(b"v=")


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=nonce,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=nonce123,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095",
        b"r=nonce123,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=99999999999",
        b"r=nonce123,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=many",
        b"r=nonce123,s=W22ZaJ0SNY7soEsUEjb6gQ==",
        b"r=nonce123,s=not base64,i=4096",
        b"m=new,r=nonce123,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"e=unknown-user",
        b"\xff\xfe",
    ],
    ids=[
        "another nonce", "nonce not extended", "too few iterations", "too many iterations", "no number",
        "no iterations", "no base64", "unknown extension", "an error", "no text",
    ],
)  # fmt: skip
def test_a_challenge_that_scram_does_not_allow_is_refused(challenge: bytes) -> None:
    with pytest.raises(ScramError):
        ScramClient("sha256", "user", "pencil", "nonce").final_message(challenge)


def test_names_with_special_characters_are_escaped() -> None:
    assert ScramClient("sha256", "a=b,c", "p", "x").first_message() == b"n,,n=a=3Db=2Cc,r=x"
