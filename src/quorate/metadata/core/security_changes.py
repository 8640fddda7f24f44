"""Deciding changes of ACLs and delegation tokens, and handing those of SCRAM users to the module that decides them.

Delegation tokens have KIP-48's rules. Times are the controller's, handed in.
"""

from typing import Final, assert_never, cast

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.metadata.core.decisions import Answer, Decision, DeletedAcls, GrantedToken, TokenExpiry, done
from quorate.metadata.core.effective_configs import BrokerView, broker_value
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.records import AclCreated, AclDeleted, DelegationTokenChanged, DelegationTokenRemoved
from quorate.metadata.core.scram_users import delete_credential, make_first_user, set_credential
from quorate.metadata.core.security_commands import (
    CreateAcl,
    CreateDelegationToken,
    DeleteAcls,
    DeleteScramCredential,
    ExpireDelegationToken,
    MakeFirstUser,
    RemoveExpiredTokens,
    RenewDelegationToken,
    SecurityCommand,
    SetScramCredential,
)
from quorate.metadata.core.security_state import SecurityState
from quorate.security.acls import check_acl
from quorate.security.delegation_token import DEFAULT_EXPIRY_MS, DEFAULT_MAX_LIFETIME_MS, DelegationToken
from quorate.security.principals import USER_TYPE, KafkaPrincipal

#: Of one command, as in Apache Kafka: all nodes apply in one turn what is decided together.
MAX_DELETED: Final = 10_000
_FOREVER: Final = 2**63 - 1


class TokenLifetimes(msgspec.Struct, frozen=True, kw_only=True):
    max_lifetime_ms: int = DEFAULT_MAX_LIFETIME_MS
    expiry_ms: int = DEFAULT_EXPIRY_MS


def decide_security(image: MetadataImage, view: BrokerView, command: SecurityCommand, now_ms: int) -> Decision[Answer]:
    state = image.security
    match command:
        case CreateAcl():
            return done(*create_acl(state, command))
        case DeleteAcls():
            deleted = delete_acls(state, command)
            return Decision(records=deleted, answer=DeletedAcls(tuple(record.acl for record in deleted)))
        case SetScramCredential():
            return done(*set_credential(state, command))
        case DeleteScramCredential():
            return done(*delete_credential(state, command))
        case MakeFirstUser():
            return done(*make_first_user(state, command))
        case CreateDelegationToken():
            created = create_token(state, _lifetimes(image, view), command, now_ms)
            return Decision(records=(created,), answer=GrantedToken(created.token))
        case RenewDelegationToken():
            renewed = renew_token(state, _lifetimes(image, view), command, now_ms)
            return Decision(records=(renewed,), answer=TokenExpiry(renewed.token.expires_ms))
        case ExpireDelegationToken():
            expired = expire_token(state, command, now_ms)
            expires_ms = expired.token.expires_ms if isinstance(expired, DelegationTokenChanged) else now_ms
            return Decision(records=(expired,), answer=TokenExpiry(expires_ms))
        case RemoveExpiredTokens():
            return done(*remove_expired(state, now_ms))
        case _:
            assert_never(command)


def _lifetimes(image: MetadataImage, view: BrokerView) -> TokenLifetimes:
    max_lifetime_ms, expiry_ms = (
        cast(int, broker_value(image, view, f"delegation.token.{name}"))
        for name in ("max.lifetime.ms", "expiry.time.ms")
    )
    return TokenLifetimes(max_lifetime_ms=max_lifetime_ms, expiry_ms=expiry_ms)


def create_acl(state: SecurityState, command: CreateAcl) -> tuple[AclCreated, ...]:
    check_acl(command.acl)
    return () if command.acl in state.acls else (AclCreated(acl=command.acl),)


def delete_acls(state: SecurityState, command: DeleteAcls) -> tuple[AclDeleted, ...]:
    """The records name what the answer has to name."""
    command.filter.check()
    records: list[AclDeleted] = []
    for acl in state.acls.matching(command.filter):
        if len(records) == MAX_DELETED:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Cannot remove more than {MAX_DELETED} acls in a single delete operation."
            )
        records.append(AclDeleted(acl=acl))
    return tuple(records)


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
