"""SCRAM (RFC 5802, RFC 7677): the client proves that it knows a password without sending it, the server the same.

Nothing tells whether a user is known before the proof has been checked, and then nothing tells which of both was wrong:
an unknown one gets a salt that is made of its name and a key that nobody has, and always the same one.

Messages are attributes of one letter with commas between them, strictly read.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from quorate.security.decoys import Decoys
from quorate.security.principals import KafkaPrincipal, user
from quorate.security.sasl.outcomes import Challenge, LoginAccepted, LoginFailed, LoginRefused, LoginWork, Outcome
from quorate.security.scram_credentials import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    credential_of,
    derive_credential,
    salted_password,
)

_ATTRIBUTE: Final = re.compile(r"([A-Za-z]+)=([^,\0]+)")
_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
#: No message of RFC 5802 has half as many; a stranger's has as many as fit.
_MOST_ATTRIBUTES: Final = 16
#: Kafka's extension that says that the name is a delegation token's id.
_TOKEN_EXTENSION: Final = "tokenauth"
_OTHER_NAME: Final = "Authentication failed: Client requested an authorization id that is different from username"
#: What nobody configures; more would let a false server burn this client's time.
_MAX_ITERATIONS: Final = 10_000_000
_NO_CHANNEL_BINDING: Final = "n,,"


class TokenSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A delegation token that is valid now, as its owner logs in with it: the HMAC is the password."""

    owner: KafkaPrincipal
    hmac: bytes
    expires_ms: int

    def __repr__(self) -> str:
        return f"TokenSecret(owner={self.owner}, ...)"


class ScramUsers(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a listener knows, and how it hides whom it does not."""

    find: Callable[[ScramMechanism, str], ScramCredential | None]
    find_token: Callable[[str], TokenSecret | None]
    #: The same on every node and after every start, under a key that is known to nobody else.
    decoys: Decoys

    def __repr__(self) -> str:
        return "ScramUsers(...)"


class ScramServer:
    def __init__(self, mechanism: ScramMechanism, users: ScramUsers, nonce: str) -> None:
        self._mechanism = mechanism
        self._users = users
        self._nonce = _check_nonce(nonce)
        self._has_challenged = False
        self._name = ""
        self._gs2_header = ""
        self._client_first_bare = ""
        self._server_first = ""
        self._by_token = False
        #: None for one that is to be derived from a token.
        self._credential: ScramCredential | None = None
        self._is_known = False
        self._token: TokenSecret | None = None
        self._salt = b""
        self._signed = b""
        self._proof = b""

    def answer(self, token: bytes) -> Outcome:
        try:
            return self._final(_as_text(token)) if self._has_challenged else self._first(_as_text(token))
        except MalformedScram as error:
            return self._refused(str(error))

    def resume(self, result: Any) -> Outcome:
        assert isinstance(result, ScramCredential)
        return self._decide(result)

    def _first(self, message: str) -> Outcome:
        binding, authorization_id, bare = _read_header(message)
        if binding.startswith("p"):
            return self._refused("the client asks for a channel binding, which is not offered")
        if binding not in ("n", "y"):
            raise MalformedScram("the message has no GS2 header")
        attributes = read_attributes(bare)
        if "m" in attributes:
            return self._refused("the client asks for an extension that is not known")
        _check_order(attributes, "n", "r")
        self._name = unescape_name(attributes["n"])
        if authorization_id not in ("", self._name):
            return self._refused(f"{self._name!r} asks to be {authorization_id!r}", _OTHER_NAME)
        self._gs2_header = message[: -len(bare)]
        self._client_first_bare = bare
        self._nonce = _check_nonce(attributes["r"]) + self._nonce
        self._by_token = attributes.get(_TOKEN_EXTENSION, "").lower() == "true"
        return self._challenge()

    def _challenge(self) -> Outcome:
        # Made for those who are known too, so that it takes as long.
        decoy = self._users.decoys.of(self._mechanism, self._name)
        if self._by_token:
            self._token = self._users.find_token(self._name)
            self._salt, iterations = decoy.salt, MIN_ITERATIONS
        else:
            found = self._users.find(self._mechanism, self._name)
            self._is_known = found is not None
            self._credential = decoy if found is None else found
            self._salt, iterations = self._credential.salt, self._credential.iterations
        self._server_first = _write_attributes({"r": self._nonce, "s": _to_base64(self._salt), "i": str(iterations)})
        self._has_challenged = True
        return Challenge(self._server_first.encode())

    def _final(self, message: str) -> Outcome:
        without_proof, separator, proof = message.rpartition(",p=")
        attributes = read_attributes(without_proof)
        _check_order(attributes, "c", "r")
        if not separator or _from_base64(attributes["c"]) != self._gs2_header.encode():
            return self._refused("the client's channel binding is not the one that it began with")
        if attributes["r"] != self._nonce:
            return self._refused("the client's nonce is not the one of this exchange")
        self._proof = _from_base64(proof)
        if len(self._proof) != self._mechanism.key_bytes:
            raise MalformedScram("the proof has not the length of the mechanism's keys")
        self._signed = f"{self._client_first_bare},{self._server_first},{without_proof}".encode()
        if self._credential is not None:
            return self._decide(self._credential)
        # Of an unknown token too, so that it takes as long.
        secret = (
            self._users.decoys.of(self._mechanism, self._name).stored_key if self._token is None else self._token.hmac
        )
        password = b64encode(secret).decode()
        return LoginWork(lambda: derive_credential(self._mechanism, password, self._salt, MIN_ITERATIONS))

    def _decide(self, credential: ScramCredential) -> Outcome:
        signature = hmac.digest(credential.stored_key, self._signed, self._mechanism.hash_name)
        client_key = bytes(one ^ other for one, other in zip(signature, self._proof, strict=True))
        stored_key = hashlib.new(self._mechanism.hash_name, client_key).digest()
        is_proven = hmac.compare_digest(stored_key, credential.stored_key)
        if not (is_proven and (self._is_known or self._token is not None)):
            return self._refused(f"wrong name or password of {self._name!r}")
        verifier = _to_base64(hmac.digest(credential.server_key, self._signed, self._mechanism.hash_name))
        return LoginAccepted(
            principal=user(self._name) if self._token is None else self._token.owner,
            token=f"v={verifier}".encode(),
            expires_ms=None if self._token is None else self._token.expires_ms,
            by_token=self._token is not None,
        )

    def _refused(self, reason: str, message: str | None = None) -> LoginRefused:
        return LoginRefused(reason=f"{self._mechanism.mechanism_name}: {reason}", message=message)


def _read_header(message: str) -> tuple[str, str, str]:
    """The channel binding, the name that the client wants to act as, and the rest of the message."""
    binding, _, rest = message.partition(",")
    authorization, separator, bare = rest.partition(",")
    if not separator or not bare or (authorization and not authorization.startswith("a=")):
        raise MalformedScram("the message has no GS2 header")
    return binding, unescape_name(authorization.removeprefix("a=")), bare


class ScramLogin:
    def __init__(
        self, mechanism: ScramMechanism, name: str, password: str, nonce: str, *, by_token: bool = False
    ) -> None:
        """With a delegation token its id is the name, and its HMAC in base64 the password."""
        self._mechanism = mechanism
        self._password = password
        self._nonce = _check_nonce(nonce)
        self._first_bare = f"n={escape_name(name)},r={nonce}" + (f",{_TOKEN_EXTENSION}=true" if by_token else "")
        self._expected_signature = b""

    def first(self) -> bytes:
        return (_NO_CHANNEL_BINDING + self._first_bare).encode()

    def answer(self, token: bytes) -> bytes | None:
        """The answer to the server's challenge takes milliseconds."""
        try:
            attributes = read_attributes(_as_text(token))
            if "e" in attributes:
                raise LoginFailed(f"the server refused: {attributes['e']}")
            if not self._expected_signature:
                return self._prove(_as_text(token), attributes)
            self._verify(attributes)
        except MalformedScram as error:
            raise LoginFailed(f"the server's SCRAM message cannot be read: {error}") from None
        return None

    def _prove(self, server_first: str, attributes: dict[str, str]) -> bytes:
        nonce, salt, iterations = self._read_challenge(attributes)
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        credential = credential_of(self._mechanism, salted, salt, iterations)
        without_proof = f"c={_to_base64(_NO_CHANNEL_BINDING.encode())},r={nonce}"
        signed = f"{self._first_bare},{server_first},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._mechanism.hash_name)
        assert hashlib.new(self._mechanism.hash_name, client_key).digest() == credential.stored_key
        signature = hmac.digest(credential.stored_key, signed, self._mechanism.hash_name)
        proof = bytes(key ^ mask for key, mask in zip(client_key, signature, strict=True))
        self._expected_signature = hmac.digest(credential.server_key, signed, self._mechanism.hash_name)
        return f"{without_proof},p={_to_base64(proof)}".encode()

    def _verify(self, attributes: dict[str, str]) -> None:
        if not hmac.compare_digest(_from_base64(attributes.get("v", "")), self._expected_signature):
            raise LoginFailed("the server could not prove that it knows the password")

    def _read_challenge(self, attributes: dict[str, str]) -> tuple[str, bytes, int]:
        if "m" in attributes:
            raise LoginFailed("the server asks for a SCRAM extension that is not known")
        nonce = _check_nonce(attributes.get("r", ""))
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise LoginFailed("the server's nonce does not extend ours")
        iterations, salt = attributes.get("i", ""), _from_base64(attributes.get("s", ""))
        is_number = iterations.isascii() and iterations.isdigit() and len(iterations) < 10
        if not is_number or not MIN_ITERATIONS <= int(iterations) <= _MAX_ITERATIONS:
            raise LoginFailed(
                f"the server asks for {iterations or 'no'} iterations, at least {MIN_ITERATIONS} are safe"
            )
        if not salt:
            raise LoginFailed("the server names no salt")
        return nonce, salt, int(iterations)


class MalformedScram(ValueError):
    """The message is none of SCRAM's; says why."""


def read_attributes(text: str) -> dict[str, str]:
    """All attributes in their order. None may come twice."""
    attributes: dict[str, str] = {}
    parts = text.split(",", _MOST_ATTRIBUTES)
    if len(parts) > _MOST_ATTRIBUTES:
        raise MalformedScram(f"the message has more than {_MOST_ATTRIBUTES} attributes")
    for part in parts:
        match = _ATTRIBUTE.fullmatch(part)
        if match is None or match[1] in attributes:
            raise MalformedScram("an attribute is malformed or comes twice")
        attributes[match[1]] = match[2]
    return attributes


def _write_attributes(attributes: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in attributes.items())


def _as_text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise MalformedScram("the message is not UTF-8") from None


def _check_order(attributes: Mapping[str, str], *first: str) -> None:
    """The attributes that a message must have stand at its beginning; extensions come after them."""
    if tuple(attributes)[: len(first)] != first:
        raise MalformedScram(f"the message does not have the attributes {', '.join(first)} first")


def _check_nonce(nonce: str) -> str:
    if _NONCE.fullmatch(nonce) is None:
        raise MalformedScram("the nonce has characters that are not printable")
    return nonce


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (NotBase64, ValueError):
        raise MalformedScram("a value is not base64 where it must be") from None


def _to_base64(content: bytes) -> str:
    return b64encode(content).decode()


def escape_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape_name(name: str) -> str:
    with_commas = name.replace("=2C", ",")
    # A regular expression that tries alternatives at each character takes 100 bytes of memory for each.
    if "=" in with_commas.replace("=3D", ","):
        raise MalformedScram("the name has an equals sign that is not escaped")
    return with_commas.replace("=3D", "=")
