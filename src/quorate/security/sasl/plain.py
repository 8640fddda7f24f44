"""PLAIN (RFC 4616): the client sends name and password in one token. Only for connections that nobody can read."""

import hmac
from collections.abc import Callable, Mapping
from typing import Any, Final

from quorate.security.principals import user
from quorate.security.sasl.outcomes import INVALID_CREDENTIALS, LoginAccepted, LoginRefused, LoginWork, Outcome
from quorate.security.scram_credentials import ScramCredential, ScramMechanism, check_password

_PREFIX: Final = "Authentication failed: "


#: The mechanism and credential of a user, or None.
FindCredential = Callable[[str], tuple[ScramMechanism, ScramCredential] | None]


class PlainPasswords:
    """Passwords out of a listener's settings (``user_alice="secret"``): compared in time that tells nothing."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        # Hashed, so that neither the length of a password nor that there is one shows in the time that a check takes.
        self._digests = {name: _digest(password.encode()) for name, password in passwords.items()}
        self._decoy = _digest(b"")

    def __repr__(self) -> str:
        return f"PlainPasswords({len(self._digests)} users)"

    def check(self, name: str, password: str) -> bool:
        is_same = hmac.compare_digest(self._digests.get(name, self._decoy), _digest(password.encode()))
        return is_same and name in self._digests


class StoredPasswords:
    """SCRAM users of the metadata, whose passwords are checked without being known. Hashing is a worker's."""

    def __init__(self, find: FindCredential, decoy_of: Callable[[str], tuple[ScramMechanism, ScramCredential]]) -> None:
        self._find = find
        #: Checked in the place of an unknown user's, so that both take as long.
        self._decoy_of = decoy_of

    def check(self, name: str, password: str) -> bool:
        found, decoy = self._find(name), self._decoy_of(name)
        mechanism, credential = found or decoy
        return check_password(mechanism, credential, password) and found is not None


class PlainServer:
    def __init__(self, passwords: PlainPasswords | StoredPasswords) -> None:
        self._passwords = passwords
        self._name = ""
        self._authorization_id = ""

    def answer(self, token: bytes) -> Outcome:
        try:
            parts = token.decode().split("\0", 3)
        except UnicodeDecodeError:
            return _refused("the token is not UTF-8", INVALID_CREDENTIALS)
        if len(parts) != 3:
            return _refused(
                "the token has not three parts", f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            )
        self._authorization_id, self._name, password = parts
        if not self._name:
            return _refused("no user name", f"{_PREFIX}username not specified")
        if not password:
            return _refused("no password", f"{_PREFIX}password not specified")
        if isinstance(self._passwords, StoredPasswords):
            stored, name = self._passwords, self._name
            return LoginWork(lambda: stored.check(name, password))
        return self.resume(self._passwords.check(self._name, password))

    def resume(self, result: Any) -> Outcome:
        if result is not True:
            return _refused(f"wrong name or password of {self._name!r}", INVALID_CREDENTIALS)
        if self._authorization_id not in ("", self._name):
            return _refused(
                f"{self._name!r} asks to be {self._authorization_id!r}",
                f"{_PREFIX}Client requested an authorization id that is different from username",
            )
        return LoginAccepted(principal=user(self._name))


class PlainLogin:
    """The client's side."""

    def __init__(self, name: str, password: str) -> None:
        self._token = f"\0{name}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def answer(self, token: bytes) -> bytes | None:  # noqa: ARG002
        return None


def _refused(reason: str, message: str) -> LoginRefused:
    return LoginRefused(reason=f"PLAIN: {reason}", message=message)


def _digest(password: bytes) -> bytes:
    return hmac.digest(b"PLAIN", password, "sha256")
