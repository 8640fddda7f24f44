"""Delegation tokens: a secret that stands for somebody for a while (KIP-48, KIP-373).

- CreateDelegationToken and DescribeDelegationToken, versions 1 to 3.
- RenewDelegationToken and ExpireDelegationToken, versions 1 to 2.

They are for those who have shown who they are, and not by a token.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from quorate.broker.api import Api
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import new_cluster_id
from quorate.metadata.core.security_commands import (
    CreateDelegationToken,
    ExpireDelegationToken,
    RenewDelegationToken,
)
from quorate.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from quorate.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from quorate.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from quorate.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from quorate.security.api_rules import DESCRIBED_TOKENS, DESCRIBED_TOKENS_OF_OWNERS, TOKENS_FOR_OTHERS
from quorate.security.delegation_token import DelegationToken, TokenKeys, is_described_to, may_ask_about_tokens
from quorate.security.principals import USER_TYPE, KafkaPrincipal

#: In the answer to a request that never came to be decided.
_NO_TIME_MS: Final = -1
_NO_TIMES: Final = {
    "issue_timestamp_ms": _NO_TIME_MS,
    "expiry_timestamp_ms": _NO_TIME_MS,
    "max_timestamp_ms": _NO_TIME_MS,
}
#: An owner and the one who asked are the same before.
_REQUESTERS_FROM: Final = 3


async def create_delegation_token(
    services: Services, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    owner = requester = context.principal
    if request.owner_principal_name:
        owner = KafkaPrincipal(request.owner_principal_type or "", request.owner_principal_name)
    renewers = tuple(KafkaPrincipal(each.principal_type, each.principal_name) for each in request.renewers)
    try:
        _require_token_request(context)
        if owner != requester and not context.access.may(TOKENS_FOR_OTHERS, str(owner)):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        if any(renewer.type != USER_TYPE for renewer in renewers):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    except KafkaError as error:
        return _created(context, owner, error_code=error.code, **_NO_TIMES)
    command = CreateDelegationToken(
        token_id=new_cluster_id(services.new_uuid()),
        owner=owner,
        requester=requester,
        renewers=renewers,
        max_lifetime_ms=request.max_lifetime_ms,
    )
    try:
        keys = _keys(services)
        token = (await services.metadata.submit_one(command)).token
    except KafkaError as error:
        return _created(context, owner, error_code=error.code)
    return _created(
        context,
        owner,
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.token_id,
        hmac=keys.hmac_of(token.token_id),
    )


def _created(context: RequestContext, owner: KafkaPrincipal, **others: Any) -> CreateDelegationTokenResponse:
    response = CreateDelegationTokenResponse(principal_type=owner.type, principal_name=owner.name, **others)
    if context.api_version < _REQUESTERS_FROM:
        return response
    requester = context.principal
    return msgspec.structs.replace(
        response, token_requester_principal_type=requester.type, token_requester_principal_name=requester.name
    )


async def renew_delegation_token(
    services: Services, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    if not _may_ask(context):
        refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return RenewDelegationTokenResponse(error_code=refused, expiry_timestamp_ms=_NO_TIME_MS)
    try:
        token_id = _token_id(services, bytes(request.hmac))
        renewal = await services.metadata.submit_one(
            RenewDelegationToken(token_id=token_id, requester=context.principal, period_ms=request.renew_period_ms)
        )
    except KafkaError as error:
        return RenewDelegationTokenResponse(error_code=error.code)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=renewal.expires_ms)


async def expire_delegation_token(
    services: Services, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    if not _may_ask(context):
        refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return ExpireDelegationTokenResponse(error_code=refused, expiry_timestamp_ms=_NO_TIME_MS)
    try:
        token_id = _token_id(services, bytes(request.hmac))
        end = await services.metadata.submit_one(
            ExpireDelegationToken(
                token_id=token_id, requester=context.principal, period_ms=request.expiry_time_period_ms
            )
        )
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error_code=error.code)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=end.expires_ms)


def describe_delegation_token(
    services: Services, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    try:
        _require_token_request(context)
        keys = _keys(services)
    except KafkaError as error:
        return DescribeDelegationTokenResponse(error_code=error.code)
    owners = None
    if request.owners is not None:
        owners = [KafkaPrincipal(owner.principal_type, owner.principal_name) for owner in request.owners]

    def is_allowed(token: DelegationToken) -> bool:
        return context.access.may(DESCRIBED_TOKENS, token.token_id) or context.access.may(
            DESCRIBED_TOKENS_OF_OWNERS, str(token.owner)
        )

    return DescribeDelegationTokenResponse(
        tokens=[
            _described_token(context, token, keys.hmac_of(token.token_id))
            for token in services.metadata.image.security.tokens.values()
            if is_described_to(token, context.principal, owners, is_allowed)
        ]
    )


def _described_token(context: RequestContext, token: DelegationToken, hmac: bytes) -> DescribedDelegationToken:
    tells_requester = context.api_version >= _REQUESTERS_FROM
    return DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type if tells_requester else "",
        token_requester_principal_name=token.requester.name if tells_requester else "",
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=_renewers(token.renewers),
    )


def _renewers(principals: Sequence[KafkaPrincipal]) -> list[DescribedDelegationTokenRenewer]:
    return [DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name) for each in principals]


def _may_ask(context: RequestContext) -> bool:
    return may_ask_about_tokens(context.origin.protocol, context.principal, by_token=context.origin.by_token)


def _require_token_request(context: RequestContext) -> None:
    if not _may_ask(context):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _keys(services: Services) -> TokenKeys:
    if services.token_keys is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return services.token_keys


def _token_id(services: Services, hmac: bytes) -> str:
    """The token that the request names by its secret."""
    token = _keys(services).find(services.metadata.image.security.tokens, hmac)
    if token is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return token.token_id


CREATE_DELEGATION_TOKEN = Api(
    request=CreateDelegationTokenRequest,
    min_version=1,
    max_version=3,
    handle=create_delegation_token,
    max_elements=1_000,
)
RENEW_DELEGATION_TOKEN = Api(
    request=RenewDelegationTokenRequest, min_version=1, max_version=2, handle=renew_delegation_token
)
EXPIRE_DELEGATION_TOKEN = Api(
    request=ExpireDelegationTokenRequest, min_version=1, max_version=2, handle=expire_delegation_token
)
DESCRIBE_DELEGATION_TOKEN = Api(
    request=DescribeDelegationTokenRequest,
    min_version=1,
    max_version=3,
    handle=describe_delegation_token,
    max_elements=1_000,
)
