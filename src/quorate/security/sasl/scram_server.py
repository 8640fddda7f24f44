"""SCRAM, the server's side (RFC 5802, RFC 7677): the client proves that it knows a password without sending it.

Nothing tells whether a user is known before the proof has been checked, and then nothing tells which of both was wrong:
an unknown one gets a salt that is made of its name and a key that nobody has, and always the same one.
"""

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final

import msgspec

from quorate.security.principals import KafkaPrincipal, user
from quorate.security.sasl.outcomes import Challenge, LoginAccepted, LoginRefused, LoginWork, Outcome
from quorate.security.sasl.scram_messages import (
    TOKEN_EXTENSION,
    MalformedScram,
    as_text,
    check_nonce,
    check_order,
    from_base64,
    read_attributes,
    to_base64,
    unescape_name,
    write_attributes,
)
from quorate.security.scram_credentials import (
    DEFAULT_ITERATIONS,
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    derive_credential,
    new_salt,
)

_OTHER_NAME: Final = "Authentication failed: Client requested an authorization id that is different from username"


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
    #: The same on every node and after every start, and known to nobody else.
    decoy_key: bytes
    #: As many as most users have.
    decoy_iterations: int = DEFAULT_ITERATIONS

    def __repr__(self) -> str:
        return "ScramUsers(...)"

    def decoy(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        seed, stored_key, server_key = (
            hmac.digest(self.decoy_key, f"{purpose}\0{mechanism.mechanism_name}\0{name}".encode(), mechanism.hash_name)
            for purpose in ("salt", "stored", "server")
        )
        return ScramCredential(
            salt=new_salt(seed), stored_key=stored_key, server_key=server_key, iterations=self.decoy_iterations
        )


class ScramServer:
    def __init__(self, mechanism: ScramMechanism, users: ScramUsers, nonce: str) -> None:
        self._mechanism = mechanism
        self._users = users
        self._nonce = check_nonce(nonce)
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
            return self._final(as_text(token)) if self._has_challenged else self._first(as_text(token))
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
        check_order(attributes, "n", "r")
        self._name = unescape_name(attributes["n"])
        if authorization_id not in ("", self._name):
            return self._refused(f"{self._name!r} asks to be {authorization_id!r}", _OTHER_NAME)
        self._gs2_header = message[: -len(bare)]
        self._client_first_bare = bare
        self._nonce = check_nonce(attributes["r"]) + self._nonce
        self._by_token = attributes.get(TOKEN_EXTENSION, "").lower() == "true"
        return self._challenge()

    def _challenge(self) -> Outcome:
        # Made for those who are known too, so that it takes as long.
        decoy = self._users.decoy(self._mechanism, self._name)
        if self._by_token:
            self._token = self._users.find_token(self._name)
            self._salt, iterations = decoy.salt, MIN_ITERATIONS
        else:
            found = self._users.find(self._mechanism, self._name)
            self._is_known = found is not None
            self._credential = decoy if found is None else found
            self._salt, iterations = self._credential.salt, self._credential.iterations
        self._server_first = write_attributes({"r": self._nonce, "s": to_base64(self._salt), "i": str(iterations)})
        self._has_challenged = True
        return Challenge(self._server_first.encode())

    def _final(self, message: str) -> Outcome:
        without_proof, separator, proof = message.rpartition(",p=")
        attributes = read_attributes(without_proof)
        check_order(attributes, "c", "r")
        if not separator or from_base64(attributes["c"]) != self._gs2_header.encode():
            return self._refused("the client's channel binding is not the one that it began with")
        if attributes["r"] != self._nonce:
            return self._refused("the client's nonce is not the one of this exchange")
        self._proof = from_base64(proof)
        if len(self._proof) != self._mechanism.key_bytes:
            raise MalformedScram("the proof has not the length of the mechanism's keys")
        self._signed = f"{self._client_first_bare},{self._server_first},{without_proof}".encode()
        if self._credential is not None:
            return self._decide(self._credential)
        # Of an unknown token too, so that it takes as long.
        secret = self._users.decoy(self._mechanism, self._name).stored_key if self._token is None else self._token.hmac
        password = b64encode(secret).decode()
        return LoginWork(lambda: derive_credential(self._mechanism, password, self._salt, MIN_ITERATIONS))

    def _decide(self, credential: ScramCredential) -> Outcome:
        signature = hmac.digest(credential.stored_key, self._signed, self._mechanism.hash_name)
        client_key = bytes(one ^ other for one, other in zip(signature, self._proof, strict=True))
        stored_key = hashlib.new(self._mechanism.hash_name, client_key).digest()
        is_proven = hmac.compare_digest(stored_key, credential.stored_key)
        if not (is_proven and (self._is_known or self._token is not None)):
            return self._refused(f"wrong name or password of {self._name!r}")
        verifier = to_base64(hmac.digest(credential.server_key, self._signed, self._mechanism.hash_name))
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
