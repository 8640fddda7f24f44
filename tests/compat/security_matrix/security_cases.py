"""Requests about configs, quotas, ACLs, users, tokens and logins."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from quorate.protocol.apis import ApiKey
from quorate.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    create_delegation_token,
    delete_acls,
    describe_client_quotas,
    describe_configs,
    describe_delegation_token,
    incremental_alter_configs,
)
from quorate.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from quorate.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from quorate.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from quorate.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from quorate.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from quorate.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from quorate.protocol.messages.sasl_handshake import SaslHandshakeRequest
from quorate.security.acls import AclOperation, AclPermission, AclResourceType, PatternType
from tests.compat.security_matrix.case import Case, case
from tests.compat.security_matrix.names import ADMIN, HERE, NAMES
from tests.compat.security_matrix.targets import NODE_ID
from tests.compat.security_matrix.world import World
from tests.eventually import eventually

_TOPICS, _BROKERS, _LOGGERS, _GROUPS = 2, 4, 8, 32
_RESOURCES: Final = (
    *((_TOPICS, name) for name in NAMES),
    *((_GROUPS, name) for name in NAMES),
    (_BROKERS, str(NODE_ID)),
    (_BROKERS, ""),
)
#: What may be changed of each.
_SETTING: Final = {
    _TOPICS: ("retention.ms", "1000000"),
    _GROUPS: ("consumer.session.timeout.ms", "50000"),
    _BROKERS: ("log.retention.ms", "1000000"),
}
_ANY: Final = 1
_SCRATCH: Final = "somebody"
_ODD: Final = "orders-odd"
_SHA_256: Final = 1
_Key = ApiKey


def _describe_configs(world: World, version: int) -> describe_configs.DescribeConfigsRequest:
    return describe_configs.DescribeConfigsRequest(
        resources=[
            describe_configs.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=[_SETTING[kind][0]]
            )
            for kind, name in _RESOURCES
        ]
    )


def _alter_configs(world: World, version: int) -> alter_configs.AlterConfigsRequest:
    return alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[alter_configs.AlterableConfig(name=_SETTING[kind][0], value=_SETTING[kind][1])],
            )
            # Apache Kafka does not have all settings of all brokers replaced.
            for kind, name in _RESOURCES[:-1]
        ],
        validate_only=True,
    )


def _change_configs(world: World, version: int) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[incremental_alter_configs.AlterableConfig(name=_SETTING[kind][0], value=_SETTING[kind][1])],
            )
            for kind, name in _RESOURCES
        ],
        validate_only=True,
    )


def _quotas(world: World, version: int) -> alter_client_quotas.AlterClientQuotasRequest:
    return alter_client_quotas.AlterClientQuotasRequest(
        entries=[
            alter_client_quotas.RequestEntryData(
                entity=[alter_client_quotas.RequestEntityData(entity_type=kind, entity_name=_SCRATCH)],
                ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1e6)],
            )
            for kind in ("user", "client-id")
        ],
        validate_only=True,
    )


def _acl(name: str, **others: Any) -> AclCreation:
    usual: dict[str, Any] = {
        "resource_type": AclResourceType.TOPIC,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": f"User:{_SCRATCH}",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": AclPermission.ALLOW,
    }
    return AclCreation(resource_name=name, **(usual | others))


def _create(acl: AclCreation, _world: World, _version: int) -> CreateAclsRequest:
    return CreateAclsRequest(creations=[acl])


#: Nobody should be able to make these.
_ODD_ACLS: Final = (
    _acl(""),
    *(_acl(_ODD, principal=principal) for principal in ("", "nobody", ":", ":nobody", "User:")),
    *(_acl(_ODD, resource_type=AclResourceType(each)) for each in (0, 1)),
    *(_acl(_ODD, resource_pattern_type=PatternType(each)) for each in (0, 1, 2)),
    *(_acl(_ODD, operation=AclOperation(each)) for each in (0, 1)),
    *(_acl(_ODD, permission_type=AclPermission(each)) for each in (0, 1)),
    _acl(_ODD, host=""),
    _acl(_ODD, resource_type=AclResourceType.CLUSTER),
)


_OF_SCRATCH: Final[dict[str, Any]] = {
    "resource_type_filter": AclResourceType.TOPIC,
    "resource_name_filter": HERE[0],
    "pattern_type_filter": PatternType.LITERAL,
    "principal_filter": f"User:{_SCRATCH}",
    "host_filter": None,
    "operation": _ANY,
    "permission_type": _ANY,
}


def _make_acl(world: World) -> None:
    if not world.authorizes:
        return
    world.ask(CreateAclsRequest(creations=[_acl(HERE[0])]), 3, CreateAclsResponse)
    find = DescribeAclsRequest(**_OF_SCRATCH)
    eventually(lambda: world.ask(find, 3, DescribeAclsResponse).resources, "an ACL of somebody")


def _change_users(world: World, version: int) -> alter_user_scram_credentials.AlterUserScramCredentialsRequest:
    return alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        deletions=[alter_user_scram_credentials.ScramCredentialDeletion(name="nobody", mechanism=_SHA_256)],
        upsertions=[
            alter_user_scram_credentials.ScramCredentialUpsertion(
                name=_SCRATCH, mechanism=_SHA_256, iterations=4096, salt=b"salt" * 4, salted_password=b"x" * 32
            )
        ],
    )


def _users(names: Sequence[str]) -> DescribeUserScramCredentialsRequest:
    """All, where there are no names: Apache Kafka never answers one without rights who says null instead."""
    return DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])


def _new_token(owner: str = "", renewer_type: str = "User") -> create_delegation_token.CreateDelegationTokenRequest:
    return create_delegation_token.CreateDelegationTokenRequest(
        owner_principal_type="User" if owner else "",
        owner_principal_name=owner,
        renewers=[create_delegation_token.CreatableRenewers(principal_type=renewer_type, principal_name=_SCRATCH)],
        max_lifetime_ms=-1,
    )


def _tokens_of(*owners: str) -> describe_delegation_token.DescribeDelegationTokenRequest:
    return describe_delegation_token.DescribeDelegationTokenRequest(
        owners=[
            describe_delegation_token.DescribeDelegationTokenOwner(principal_type="User", principal_name=owner)
            for owner in owners
        ]
        or None
    )


SECURITY_CASES: Final[tuple[Case, ...]] = (
    case(_Key.DESCRIBE_CONFIGS, "of all kinds", _describe_configs),
    case(_Key.ALTER_CONFIGS, "of all kinds", _alter_configs),
    case(_Key.INCREMENTAL_ALTER_CONFIGS, "of all kinds", _change_configs),
    case(
        _Key.DESCRIBE_CLIENT_QUOTAS,
        "of users",
        lambda _world, _version: describe_client_quotas.DescribeClientQuotasRequest(
            components=[describe_client_quotas.ComponentData(entity_type="user", match_type=2, match=None)]
        ),
    ),
    case(_Key.ALTER_CLIENT_QUOTAS, "of two", _quotas),
    case(_Key.DESCRIBE_ACLS, "of somebody", lambda _w, _v: DescribeAclsRequest(**_OF_SCRATCH), before=_make_acl),
    case(
        _Key.CREATE_ACLS,
        "for somebody",
        lambda _world, _version: CreateAclsRequest(creations=[_acl(HERE[0]), _acl("")]),
    ),
    case(
        _Key.DELETE_ACLS,
        "of somebody",
        lambda _world, _version: delete_acls.DeleteAclsRequest(
            filters=[
                delete_acls.DeleteAclsFilter(**_OF_SCRATCH),
                delete_acls.DeleteAclsFilter(**(_OF_SCRATCH | {"principal_filter": "User:nobody"})),
            ]
        ),
        before=_make_acl,
    ),
    case(
        _Key.DESCRIBE_USER_SCRAM_CREDENTIALS,
        "of nobody",
        lambda _world, _version: _users(["nobody", "nobody-else"]),
    ),
    case(_Key.ALTER_USER_SCRAM_CREDENTIALS, "of two", _change_users),
    case(_Key.DESCRIBE_USER_SCRAM_CREDENTIALS, "of all", lambda _world, _version: _users([])),
    case(_Key.DESCRIBE_USER_SCRAM_CREDENTIALS, "of some", lambda _world, _version: _users([_SCRATCH, "nobody"])),
    case(_Key.DESCRIBE_DELEGATION_TOKEN, "of all", lambda _w, _v: _tokens_of(), is_list=True),
    case(_Key.DESCRIBE_DELEGATION_TOKEN, "of owners", lambda _w, _v: _tokens_of(ADMIN, "nobody"), is_list=True),
    case(
        _Key.RENEW_DELEGATION_TOKEN,
        "of the super user",
        lambda world, _version: RenewDelegationTokenRequest(hmac=world.hmac, renew_period_ms=60_000),
    ),
    case(
        _Key.RENEW_DELEGATION_TOKEN,
        "that there is not",
        lambda _world, _version: RenewDelegationTokenRequest(hmac=b"x" * 64, renew_period_ms=60_000),
    ),
    case(
        _Key.EXPIRE_DELEGATION_TOKEN,
        "of the super user",
        lambda world, _version: ExpireDelegationTokenRequest(hmac=world.hmac, expiry_time_period_ms=600_000),
    ),
    case(
        _Key.EXPIRE_DELEGATION_TOKEN,
        "that there is not",
        lambda _world, _version: ExpireDelegationTokenRequest(hmac=b"x" * 64, expiry_time_period_ms=60_000),
    ),
    case(_Key.CREATE_DELEGATION_TOKEN, "for oneself", lambda _w, _v: _new_token()),
    case(_Key.CREATE_DELEGATION_TOKEN, "for another", lambda _w, _v: _new_token(_SCRATCH), first=3),
    case(_Key.CREATE_DELEGATION_TOKEN, "for another kind", lambda _w, _v: _new_token(renewer_type="Group")),
    *(
        case(
            _Key.CREATE_ACLS,
            f"that is odd ({number})",
            partial(_create, acl),
            first=3,
        )
        for number, acl in enumerate(_ODD_ACLS, 1)
    ),
    case(_Key.SASL_HANDSHAKE, "afterwards", lambda _world, _version: SaslHandshakeRequest(mechanism="PLAIN")),
    case(_Key.SASL_AUTHENTICATE, "afterwards", lambda _world, _version: SaslAuthenticateRequest(auth_bytes=b"x")),
)
