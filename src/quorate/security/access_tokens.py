"""Access tokens: which claims one needs to be for this cluster and valid now. Its signature is checked elsewhere.

Apart from ``quorate.security.json_web_tokens``, so that a node without OAUTHBEARER does not load what that needs.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


class InvalidToken(Exception):
    """Says why, for the log: it has nothing of the token in it that is secret."""

    def __init__(self, reason: str, *, unknown_key: bool = False) -> None:
        super().__init__(reason)
        #: The provider may have a new key, which is not known here yet.
        self.unknown_key = unknown_key


class TokenRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which tokens are for this cluster; by the names of ``sasl.oauthbearer.*``."""

    expected_issuer: str | None = None
    #: One of them has to be among the token's.
    expected_audience: tuple[str, ...] = ()
    clock_skew_seconds: int = 30
    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scopes: frozenset[str] = frozenset()


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    principal_name: str
    expires_ms: int
    scopes: frozenset[str] = frozenset()


def check_claims(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> AccessToken:
    skew_ms = rules.clock_skew_seconds * 1000
    expires_ms = _time_ms(claims, "exp")
    if expires_ms is None:
        raise InvalidToken("it has no expiry")
    if now_ms >= expires_ms + skew_ms:
        raise InvalidToken("it has expired")
    for claim, problem in (("nbf", "it is not valid yet"), ("iat", "it was issued in the future")):
        begins_ms = _time_ms(claims, claim)
        if begins_ms is not None and begins_ms > now_ms + skew_ms:
            raise InvalidToken(problem)
    if rules.expected_issuer is not None and claims.get("iss") != rules.expected_issuer:
        raise InvalidToken("its issuer is another one")
    if rules.expected_audience and not set(rules.expected_audience) & set(_texts(claims.get("aud"), separated=False)):
        raise InvalidToken("its audience is another one")
    scopes = frozenset(_texts(claims.get(rules.scope_claim), separated=True))
    if not rules.required_scopes <= scopes:
        raise InvalidToken("it lacks a scope")
    name = claims.get(rules.principal_claim)
    if not isinstance(name, str) or not name.strip():
        raise InvalidToken(f"it has no claim {rules.principal_claim!r} that names its principal")
    return AccessToken(principal_name=name, expires_ms=expires_ms, scopes=scopes)


def _time_ms(claims: Mapping[str, Any], claim: str) -> int | None:
    value = claims.get(claim)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise InvalidToken(f"its claim {claim!r} is no time")
    return int(value * 1000)


def _texts(value: Any, *, separated: bool) -> Iterable[str]:
    if isinstance(value, str):
        return value.split() if separated else (value,)
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else ()
