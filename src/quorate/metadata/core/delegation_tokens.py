"""Deciding changes of delegation tokens: KIP-48's rules. Times are the controller's, handed in."""

from typing import Final

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.metadata.core.security_commands import (
    CreateDelegationToken,
    ExpireDelegationToken,
    RenewDelegationToken,
)
from quorate.metadata.core.security_records import DelegationTokenChanged, DelegationTokenRemoved
from quorate.metadata.core.security_state import SecurityState
from quorate.security.delegation_token import DEFAULT_EXPIRY_MS, DEFAULT_MAX_LIFETIME_MS, DelegationToken
from quorate.security.principals import USER_TYPE, KafkaPrincipal

_FOREVER: Final = 2**63 - 1


class TokenLifetimes(msgspec.Struct, frozen=True, kw_only=True):
    max_lifetime_ms: int = DEFAULT_MAX_LIFETIME_MS
    expiry_ms: int = DEFAULT_EXPIRY_MS


def create_token(
    state: SecurityState, lifetimes: TokenLifetimes, command: CreateDelegationToken, now_ms: int
) -> DelegationTokenChanged:
    """The record holds the answer; where the token is there already, it changes nothing."""
    known = state.tokens.get(command.token_id)
    if known is not None:
        return DelegationTokenChanged(token=known)
    if any(renewer.type != USER_TYPE for renewer in command.renewers):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    lifetime_ms = lifetimes.max_lifetime_ms
    if command.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, command.max_lifetime_ms)
    max_ms = min(_FOREVER, now_ms + lifetime_ms)
    token = DelegationToken(
        token_id=command.token_id,
        owner=command.owner,
        requester=command.requester,
        renewers=command.renewers,
        issued_ms=now_ms,
        max_ms=max_ms,
        expires_ms=min(max_ms, now_ms + lifetimes.expiry_ms),
    )
    return DelegationTokenChanged(token=token)


def renew_token(
    state: SecurityState, lifetimes: TokenLifetimes, command: RenewDelegationToken, now_ms: int
) -> DelegationTokenChanged:
    token = _find(state, command.token_id)
    if token.is_expired(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    _check_renewer(token, command.requester)
    period_ms = lifetimes.expiry_ms
    if command.period_ms > 0:
        period_ms = min(period_ms, command.period_ms)
    return _expiring_at(token, now_ms + period_ms)


def expire_token(
    state: SecurityState, command: ExpireDelegationToken, now_ms: int
) -> DelegationTokenChanged | DelegationTokenRemoved:
    """Of a token that ends at once the answer's time is now."""
    token = _find(state, command.token_id)
    _check_renewer(token, command.requester)
    if command.period_ms < 0:
        return DelegationTokenRemoved(token_id=token.token_id)
    if token.is_expired(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return _expiring_at(token, now_ms + command.period_ms)


def remove_expired(state: SecurityState, now_ms: int) -> tuple[DelegationTokenRemoved, ...]:
    return tuple(
        DelegationTokenRemoved(token_id=token.token_id) for token in state.tokens.values() if token.is_expired(now_ms)
    )


def _find(state: SecurityState, token_id: str) -> DelegationToken:
    token = state.tokens.get(token_id)
    if token is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return token


def _check_renewer(token: DelegationToken, requester: KafkaPrincipal) -> None:
    if not token.may_be_renewed_by(requester):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _expiring_at(token: DelegationToken, time_ms: int) -> DelegationTokenChanged:
    return DelegationTokenChanged(token=msgspec.structs.replace(token, expires_ms=min(token.max_ms, time_ms)))
