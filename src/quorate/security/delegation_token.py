"""Delegation tokens: who has one, for how long, and the secret that goes with it (KIP-48, KIP-373).

The secret is an HMAC of the token's id under ``delegation.token.secret.key``, which all nodes have. So it is stored
nowhere: the metadata holds who owns a token and until when, and each node computes the rest.
"""

import hmac
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from hashlib import sha512
from typing import Final

import msgspec

from quorate.security.listeners import SecurityProtocol
from quorate.security.principals import ANONYMOUS, KafkaPrincipal
from quorate.security.sasl.scram import TokenSecret

DEFAULT_MAX_LIFETIME_MS: Final = 7 * 24 * 3_600_000
DEFAULT_EXPIRY_MS: Final = 24 * 3_600_000
_KEPT_SECRETS: Final = 10_000


class DelegationToken(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    token_id: str
    owner: KafkaPrincipal
    #: Who asked for it: another one than the owner, where that is allowed.
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...] = ()
    issued_ms: int
    #: It can be renewed until then.
    max_ms: int
    expires_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return min(self.max_ms, self.expires_ms) < now_ms

    def may_be_renewed_by(self, principal: KafkaPrincipal) -> bool:
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: KafkaPrincipal) -> bool:
        return principal == self.requester or self.may_be_renewed_by(principal)


class TokenKeys:
    """The secrets of all tokens, under one master key. Shown without it."""

    def __init__(self, secret_key: str) -> None:
        key = secret_key.encode()
        self._hmac: Callable[[str], bytes] = lru_cache(maxsize=_KEPT_SECRETS)(
            lambda token_id: hmac.digest(key, token_id.encode(), "sha512")
        )
        #: Of the tokens that were last looked into: their ids by the hash of their secret, so that the time of a look
        #: tells nothing of a secret, and there is one hash to compute for each token and not one for each look.
        self._indexed: Mapping[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}

    def __repr__(self) -> str:
        return "TokenKeys(...)"

    def hmac_of(self, token_id: str) -> bytes:
        return self._hmac(token_id)

    def find(self, tokens: Mapping[str, DelegationToken], secret: bytes) -> DelegationToken | None:
        """The token that somebody names by its secret."""
        if tokens is not self._indexed:
            self._index(tokens)
        return tokens.get(self._ids.get(sha512(secret).digest(), ""))

    def _index(self, tokens: Mapping[str, DelegationToken]) -> None:
        known = {token_id: digest for digest, token_id in self._ids.items()}
        digests = {each: known.get(each) or sha512(self._hmac(each)).digest() for each in tokens}
        self._ids = {digest: token_id for token_id, digest in digests.items()}
        self._indexed = tokens

    def login_secret(self, tokens: Mapping[str, DelegationToken], token_id: str, now_ms: int) -> TokenSecret | None:
        """What SCRAM checks a login by; None where there is no such token, or not any more."""
        token = tokens.get(token_id)
        if token is None or token.is_expired(now_ms):
            return None
        return TokenSecret(owner=token.owner, hmac=self._hmac(token_id), expires_ms=token.expires_ms)


def may_ask_about_tokens(protocol: SecurityProtocol, principal: KafkaPrincipal, *, by_token: bool) -> bool:
    """Not without having shown who one is, nor by showing a token: tokens do not beget tokens."""
    is_anonymous = protocol is SecurityProtocol.SSL and principal == ANONYMOUS
    return not (by_token or is_anonymous or protocol is SecurityProtocol.PLAINTEXT)


def is_described_to(
    token: DelegationToken,
    requester: KafkaPrincipal,
    owners: Iterable[KafkaPrincipal] | None,
    is_allowed: Callable[[DelegationToken], bool],
) -> bool:
    """Whether the token is among those asked for, and the requester's own or one that an ACL opens to them."""
    if owners is not None and not any(token.concerns(owner) for owner in owners):
        return False
    return token.concerns(requester) or is_allowed(token)
