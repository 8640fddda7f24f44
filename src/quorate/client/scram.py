"""The client's side of SCRAM (RFC 5802, RFC 7677) without channel binding. Pure: the nonce is handed in.

Three steps: ``first_message``, ``final_message`` of the server's first, ``verify`` of the server's last. The server
proves with the last one that it knows the password too.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import Final

from quorate.kernel.errors import QuorateError

#: RFC 7677 asks for at least as many, and a server that names fewer may be after the password.
MIN_ITERATIONS: Final = 4096
#: What nobody configures; more would let a false server burn this client's time.
MAX_ITERATIONS: Final = 10_000_000
_NO_CHANNEL_BINDING: Final = "n,,"


class ScramError(QuorateError):
    """The server's message is not what SCRAM allows."""


class ScramClient:
    def __init__(self, hash_name: str, username: str, password: str, nonce: str) -> None:
        self._hash_name = hash_name
        self._password = password.encode()
        self._nonce = nonce
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={nonce}"
        self._expected_signature = b""

    def first_message(self) -> bytes:
        return (_NO_CHANNEL_BINDING + self._first_bare).encode()

    def final_message(self, server_first: bytes) -> bytes:
        """The proof that this client knows the password, for the salt and iterations of the server's first message."""
        attributes = _parse(server_first)
        nonce, salt, iterations = self._read_challenge(attributes)
        salted = hashlib.pbkdf2_hmac(self._hash_name, self._password, salt, iterations)
        without_proof = f"c={b64encode(_NO_CHANNEL_BINDING.encode()).decode()},r={nonce}"
        signed = f"{self._first_bare},{server_first.decode()},{without_proof}".encode()
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash_name, client_key).digest()
        signature = self._hmac(stored_key, signed)
        proof = bytes(key ^ mask for key, mask in zip(client_key, signature, strict=True))
        self._expected_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Raise unless the server's last message proves that it knows the password."""
        attributes = _parse(server_final)
        if "e" in attributes:
            raise ScramError(f"the server refused: {attributes['e']}")
        signature = _from_base64(attributes.get("v", ""))
        if not self._expected_signature or not hmac.compare_digest(signature, self._expected_signature):
            raise ScramError("the server could not prove that it knows the password")

    def _read_challenge(self, attributes: dict[str, str]) -> tuple[str, bytes, int]:
        if "e" in attributes:
            raise ScramError(f"the server refused: {attributes['e']}")
        if "m" in attributes:
            raise ScramError("the server asks for an extension that is not known")
        nonce = attributes.get("r", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the server's nonce does not extend ours")
        iterations = attributes.get("i", "")
        if not iterations.isdecimal() or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
            raise ScramError(f"the server asks for {iterations or 'no'} iterations, at least {MIN_ITERATIONS} are safe")
        return nonce, _from_base64(attributes.get("s", "")), int(iterations)

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash_name)


def _parse(message: bytes) -> dict[str, str]:
    try:
        parts = [part.partition("=") for part in message.decode().split(",")]
    except UnicodeDecodeError:
        raise ScramError("the server's message is not text") from None
    return {name: value for name, _, value in parts}


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except NotBase64:
        raise ScramError("the server's message is not base64 where it must be") from None
