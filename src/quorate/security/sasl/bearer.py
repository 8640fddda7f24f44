"""OAUTHBEARER (RFC 7628): the client shows an access token of an identity provider.

A token that is refused is answered with a small JSON text first; the client acknowledges it, and only then the
exchange has failed. Apache Kafka's clients rely on it.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from quorate.security.access_tokens import AccessToken, InvalidToken
from quorate.security.principals import user
from quorate.security.sasl.outcomes import Challenge, LoginAccepted, LoginFailed, LoginRefused, Outcome
from quorate.security.sasl.scram import MalformedScram, unescape_name

_SEPARATOR: Final = "\x01"
_HEADER: Final = re.compile(r"n,(?:a=(?P<authzid>[^,\x00\x01]+))?,\x01(?P<pairs>.*)\x01", re.DOTALL)
#: Of the token and its extensions. A stranger's message has as many as fit.
_MOST_PAIRS: Final = 64
_PAIR: Final = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]*)")
_AUTHORIZATION: Final = re.compile(r"([A-Za-z]+) +([-_.~+/A-Za-z0-9]+=*)")
_ACKNOWLEDGED: Final = b"\x01"
_INVALID_TOKEN: Final = '{"status":"invalid_token"}'

#: The token as it is verified now; raises ``InvalidToken``. Takes a fraction of a millisecond.
Verify = Callable[[str], AccessToken]


class BearerServer:
    def __init__(self, verify: Verify) -> None:
        self._verify = verify
        self._reason: str | None = None
        #: Whether the provider may have a key that is not known here yet: worth a look, not too often.
        self.wants_keys = False

    def answer(self, token: bytes) -> Outcome:
        if self._reason is not None:
            if token != _ACKNOWLEDGED:
                return _refused("the client goes on after its token was refused")
            return LoginRefused(reason=f"OAUTHBEARER: {self._reason}", message=_INVALID_TOKEN)
        try:
            name, access_token, _ = _read_first(token)
        except ValueError as error:
            return _refused(str(error))
        try:
            verified = self._verify(access_token)
        except InvalidToken as error:
            self._reason = f"the token is refused: {error}"
            self.wants_keys = error.unknown_key
            return Challenge(_INVALID_TOKEN.encode())
        if name not in ("", verified.principal_name):
            return LoginRefused(
                reason=f"OAUTHBEARER: {verified.principal_name!r} asks to be {name!r}",
                message="Authentication failed: Client requested an authorization id that is different from "
                "the token's principal name",
            )
        return LoginAccepted(principal=user(verified.principal_name), expires_ms=verified.expires_ms)

    def resume(self, result: Any) -> Outcome:
        raise AssertionError(f"there was no work that {result!r} could come of")


class BearerLogin:
    """The client's side. Extensions go with the token, as Confluent's cloud asks for."""

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        pairs = {"auth": f"Bearer {token}", **(extensions or {})}
        for key, value in pairs.items():
            if _PAIR.fullmatch(f"{key}={value}") is None:
                raise LoginFailed(f"OAUTHBEARER: {key!r} or its value has a character that may not be sent")
        self._first = f"n,,{_SEPARATOR}{_SEPARATOR.join(f'{key}={value}' for key, value in pairs.items())}"
        self._failure: str | None = None

    def first(self) -> bytes:
        return f"{self._first}{_SEPARATOR}{_SEPARATOR}".encode()

    def answer(self, token: bytes) -> bytes | None:
        """A token of the server says why it refuses; it wants to hear that this was read."""
        if self._failure is not None:
            raise LoginFailed(self._failure)
        if not token:
            return None
        self._failure = f"the server refused the token: {token[:200].decode(errors='replace')}"
        return _ACKNOWLEDGED


def _read_first(message: bytes) -> tuple[str, str, dict[str, str]]:
    """The name that the client wants to act as, its access token, and its extensions."""
    try:
        match = _HEADER.fullmatch(message.decode())
    except UnicodeDecodeError:
        raise ValueError("the message is not UTF-8") from None
    if match is None:
        raise ValueError("the message is not of the mechanism's form")
    try:
        name = unescape_name(match["authzid"] or "")
    except MalformedScram as error:
        raise ValueError(str(error)) from None
    pairs: dict[str, str] = {}
    parts = match["pairs"].split(_SEPARATOR, _MOST_PAIRS)
    if len(parts) > _MOST_PAIRS:
        raise ValueError(f"the message has more than {_MOST_PAIRS} pairs")
    for part in filter(None, parts):
        pair = _PAIR.fullmatch(part)
        if pair is None or pair[1] in pairs:
            raise ValueError("the message has a pair that is malformed or comes twice")
        pairs[pair[1]] = pair[2]
    authorization = _AUTHORIZATION.fullmatch(pairs.pop("auth", ""))
    if authorization is None or authorization[1].lower() != "bearer":
        raise ValueError("the message has no bearer token")
    return name, authorization[2], pairs


def _refused(reason: str) -> LoginRefused:
    return LoginRefused(reason=f"OAUTHBEARER: {reason}")
