"""Who may do what, and what logins are checked against: ACLs and SCRAM users.

- DescribeAcls, CreateAcls and DeleteAcls, versions 1 to 3: without an authorizer, whoever asks is told so.
- DescribeUserScramCredentials and AlterUserScramCredentials, version 0.
- SaslHandshake, versions 0 to 1, and SaslAuthenticate, versions 0 to 2, where nobody is to log in: logins themselves
  never get here, as ``broker.sasl_gate`` has them before a connection's requests go to handlers.
"""

from typing import Protocol

from quorate.broker.api import Api
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.metadata.core.decisions import DeletedAcls
from quorate.metadata.core.scram_users import ScramUpsertion, describe_users, plan_changes
from quorate.metadata.core.security_commands import CreateAcl, DeleteAcls, DeleteScramCredential
from quorate.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from quorate.protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from quorate.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from quorate.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from quorate.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from quorate.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from quorate.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from quorate.security.acls import Acl, AclFilter, AclOperation, AclPermission, AclResourceType, PatternType
from quorate.security.sasl.session import illegal_authenticate, illegal_handshake
from quorate.security.scram_credentials import ScramMechanism


def describe_acls(services: Services, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    try:
        _require_authorizer(services, " on the broker")
        wanted = _filter(request)
        wanted.check()
    except KafkaError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    found: dict[tuple[int, str, int], list[AclDescription]] = {}
    for acl in services.metadata.image.security.acls.matching(wanted):
        pattern = (int(acl.resource_type), acl.resource_name, int(acl.pattern_type))
        found.setdefault(pattern, []).append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=int(acl.operation),
                permission_type=int(acl.permission),
            )
        )
    resources = [
        DescribeAclsResource(resource_type=kind, resource_name=name, pattern_type=pattern_type, acls=acls)
        for (kind, name, pattern_type), acls in found.items()
    ]
    return DescribeAclsResponse(error_message=None, resources=resources)


async def create_acls(services: Services, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    try:
        _require_authorizer(services)
    except KafkaError as error:
        return CreateAclsResponse(
            results=[AclCreationResult(error_code=error.code, error_message=error.message)] * len(request.creations)
        )
    commands = [CreateAcl(acl=_acl(creation)) for creation in request.creations]
    outcomes = await services.metadata.submit(commands) if commands else []
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=outcome.code, error_message=outcome.message)
            if isinstance(outcome, KafkaError)
            else AclCreationResult(error_message=None)
            for outcome in outcomes
        ]
    )


async def delete_acls(services: Services, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    try:
        _require_authorizer(services)
    except KafkaError as error:
        return DeleteAclsResponse(filter_results=[_deleted(error)] * len(request.filters))
    commands = [DeleteAcls(filter=_filter(wanted)) for wanted in request.filters]
    outcomes = await services.metadata.submit(commands) if commands else []
    return DeleteAclsResponse(filter_results=[_deleted(outcome) for outcome in outcomes])


def _require_authorizer(services: Services, where: str = ".") -> None:
    """In Apache Kafka's words, which are not the same for all of the APIs."""
    if services.access_control is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, f"No Authorizer is configured{where}")


def _acl(creation: AclCreation) -> Acl:
    return Acl(
        resource_type=AclResourceType(creation.resource_type),
        pattern_type=PatternType(creation.resource_pattern_type),
        resource_name=creation.resource_name,
        principal=creation.principal,
        host=creation.host,
        operation=AclOperation(creation.operation),
        permission=AclPermission(creation.permission_type),
    )


class _WireFilter(Protocol):
    """What DescribeAcls and DeleteAcls look for, as both have it."""

    @property
    def resource_type_filter(self) -> int: ...
    @property
    def resource_name_filter(self) -> str | None: ...
    @property
    def pattern_type_filter(self) -> int: ...
    @property
    def principal_filter(self) -> str | None: ...
    @property
    def host_filter(self) -> str | None: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


def _filter(wanted: _WireFilter) -> AclFilter:
    return AclFilter(
        resource_type=AclResourceType(wanted.resource_type_filter),
        pattern_type=PatternType(wanted.pattern_type_filter),
        resource_name=wanted.resource_name_filter,
        principal=wanted.principal_filter,
        host=wanted.host_filter,
        operation=AclOperation(wanted.operation),
        permission=AclPermission(wanted.permission_type),
    )


def _deleted(outcome: DeletedAcls | KafkaError) -> DeleteAclsFilterResult:
    if isinstance(outcome, KafkaError):
        return DeleteAclsFilterResult(error_code=outcome.code, error_message=outcome.message)
    matching = [
        DeleteAclsMatchingAcl(
            error_message=None,
            resource_type=int(acl.resource_type),
            resource_name=acl.resource_name,
            pattern_type=int(acl.pattern_type),
            principal=acl.principal,
            host=acl.host,
            operation=int(acl.operation),
            permission_type=int(acl.permission),
        )
        for acl in outcome.acls
    ]
    return DeleteAclsFilterResult(error_message=None, matching_acls=matching)


def describe_user_scram_credentials(
    services: Services, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    names = None if request.users is None else [user.name for user in request.users]
    described = describe_users(services.metadata.image.security, names)
    return DescribeUserScramCredentialsResponse(
        error_message=None, results=[_described_user(user, found) for user, found in described.items()]
    )


def _described_user(user: str, found: dict[ScramMechanism, int] | KafkaError) -> DescribeUserScramCredentialsResult:
    if isinstance(found, KafkaError):
        return DescribeUserScramCredentialsResult(user=user, error_code=found.code, error_message=found.message)
    infos = [CredentialInfo(mechanism=int(mechanism), iterations=count) for mechanism, count in found.items()]
    return DescribeUserScramCredentialsResult(user=user, error_message=None, credential_infos=infos)


async def alter_user_scram_credentials(
    services: Services, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    plan = plan_changes(
        [
            DeleteScramCredential(user=deletion.name, mechanism=ScramMechanism(deletion.mechanism))
            for deletion in request.deletions
        ],
        [
            ScramUpsertion(
                user=upsertion.name,
                mechanism=ScramMechanism(upsertion.mechanism),
                iterations=upsertion.iterations,
                salt=bytes(upsertion.salt),
                salted_password=bytes(upsertion.salted_password),
            )
            for upsertion in request.upsertions
        ],
    )
    errors = {user: change for user, change in plan.items() if isinstance(change, KafkaError)}
    commands = {user: change for user, change in plan.items() if not isinstance(change, KafkaError)}
    outcomes = await services.metadata.submit(list(commands.values())) if commands else []
    errors |= {
        user: outcome for user, outcome in zip(commands, outcomes, strict=True) if isinstance(outcome, KafkaError)
    }
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=user,
                error_code=errors[user].code if user in errors else 0,
                error_message=errors[user].message if user in errors else None,
            )
            for user in plan
        ]
    )


def sasl_handshake(services: Services, context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return illegal_handshake()


def sasl_authenticate(
    services: Services, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    return illegal_authenticate()


DESCRIBE_ACLS = Api(request=DescribeAclsRequest, min_version=1, max_version=3, handle=describe_acls)
CREATE_ACLS = Api(
    request=CreateAclsRequest,
    min_version=1,
    max_version=3,
    handle=create_acls,
    parts=(Parts(of=("creations",), into=("results",)),),
)
DELETE_ACLS = Api(
    request=DeleteAclsRequest,
    min_version=1,
    max_version=3,
    handle=delete_acls,
    parts=(Parts(of=("filters",), into=("filter_results",), per_part=20),),
    max_elements=10_000,
)
DESCRIBE_USER_SCRAM_CREDENTIALS = Api(
    request=DescribeUserScramCredentialsRequest,
    min_version=0,
    max_version=0,
    handle=describe_user_scram_credentials,
)
ALTER_USER_SCRAM_CREDENTIALS = Api(
    request=AlterUserScramCredentialsRequest,
    min_version=0,
    max_version=0,
    handle=alter_user_scram_credentials,
    max_elements=1_000,
)
SASL_HANDSHAKE = Api(request=SaslHandshakeRequest, min_version=0, max_version=1, handle=sasl_handshake)
SASL_AUTHENTICATE = Api(request=SaslAuthenticateRequest, min_version=0, max_version=2, handle=sasl_authenticate)
