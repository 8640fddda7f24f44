"""SCRAM, the client's side: proves that it knows a password, and has the server prove the same."""

import hashlib
import hmac
from typing import Final

from quorate.security.sasl.outcomes import LoginFailed
from quorate.security.sasl.scram_messages import (
    TOKEN_EXTENSION,
    MalformedScram,
    as_text,
    check_nonce,
    escape_name,
    from_base64,
    read_attributes,
    to_base64,
)
from quorate.security.scram_credentials import MIN_ITERATIONS, ScramMechanism, credential_of, salted_password

#: What nobody configures; more would let a false server burn this client's time.
MAX_ITERATIONS: Final = 10_000_000
_NO_CHANNEL_BINDING: Final = "n,,"


class ScramLogin:
    def __init__(
        self, mechanism: ScramMechanism, name: str, password: str, nonce: str, *, by_token: bool = False
    ) -> None:
        """With a delegation token its id is the name, and its HMAC in base64 the password."""
        self._mechanism = mechanism
        self._password = password
        self._nonce = check_nonce(nonce)
        self._first_bare = f"n={escape_name(name)},r={nonce}" + (f",{TOKEN_EXTENSION}=true" if by_token else "")
        self._expected_signature = b""

    def first(self) -> bytes:
        return (_NO_CHANNEL_BINDING + self._first_bare).encode()

    def answer(self, token: bytes) -> bytes | None:
        """The answer to the server's challenge takes milliseconds."""
        try:
            attributes = read_attributes(as_text(token))
            if "e" in attributes:
                raise LoginFailed(f"the server refused: {attributes['e']}")
            if not self._expected_signature:
                return self._prove(as_text(token), attributes)
            self._verify(attributes)
        except MalformedScram as error:
            raise LoginFailed(f"the server's SCRAM message cannot be read: {error}") from None
        return None

    def _prove(self, server_first: str, attributes: dict[str, str]) -> bytes:
        nonce, salt, iterations = self._read_challenge(attributes)
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        credential = credential_of(self._mechanism, salted, salt, iterations)
        without_proof = f"c={to_base64(_NO_CHANNEL_BINDING.encode())},r={nonce}"
        signed = f"{self._first_bare},{server_first},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._mechanism.hash_name)
        assert hashlib.new(self._mechanism.hash_name, client_key).digest() == credential.stored_key
        signature = hmac.digest(credential.stored_key, signed, self._mechanism.hash_name)
        proof = bytes(key ^ mask for key, mask in zip(client_key, signature, strict=True))
        self._expected_signature = hmac.digest(credential.server_key, signed, self._mechanism.hash_name)
        return f"{without_proof},p={to_base64(proof)}".encode()

    def _verify(self, attributes: dict[str, str]) -> None:
        if not hmac.compare_digest(from_base64(attributes.get("v", "")), self._expected_signature):
            raise LoginFailed("the server could not prove that it knows the password")

    def _read_challenge(self, attributes: dict[str, str]) -> tuple[str, bytes, int]:
        if "m" in attributes:
            raise LoginFailed("the server asks for a SCRAM extension that is not known")
        nonce = check_nonce(attributes.get("r", ""))
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise LoginFailed("the server's nonce does not extend ours")
        iterations, salt = attributes.get("i", ""), from_base64(attributes.get("s", ""))
        is_number = iterations.isascii() and iterations.isdigit() and len(iterations) < 10
        if not is_number or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
            raise LoginFailed(
                f"the server asks for {iterations or 'no'} iterations, at least {MIN_ITERATIONS} are safe"
            )
        if not salt:
            raise LoginFailed("the server names no salt")
        return nonce, salt, int(iterations)
