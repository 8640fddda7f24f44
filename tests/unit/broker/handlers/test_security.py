"""ACLs, SCRAM users and delegation tokens on the wire, on a whole node."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random

import pytest

from quorate.broker.request_context import Origin
from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from quorate.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from quorate.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from quorate.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from quorate.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from quorate.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from quorate.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from quorate.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from quorate.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from quorate.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from quorate.security.acls import AclOperation, AclPermission, AclResourceType, PatternType
from quorate.security.listeners import SecurityProtocol
from quorate.security.principals import user
from quorate.security.scram_credentials import ScramMechanism, check_password, salted_password
from tests.simulation.disk import SimulatedDisk
from tests.simulation.simulated_node import SimulatedClock, SimulatedNode

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
OPEN = AUTHORIZER | {"super.users": "User:ANONYMOUS"}
TOKENS = {"delegation.token.secret.key": "the master key"}
ALICE = Origin(host="10.0.0.1", principal=user("alice"), protocol=SecurityProtocol.SASL_SSL)
BOB = Origin(host="10.0.0.2", principal=user("bob"), protocol=SecurityProtocol.SASL_SSL)
SHA_256 = ScramMechanism.SCRAM_SHA_256

Scenario = Callable[[SimulatedNode], Awaitable[None]]


def on_a_node(scenario: Scenario, configs: Mapping[str, str]) -> None:
    async def whole() -> None:
        random = Random(1)
        node = SimulatedNode(SimulatedDisk(random), SimulatedClock(), random)
        await node.start(configs)
        await scenario(node)
        await node.stop()

    asyncio.run(whole())


def creation(name: str = "orders", **changes: object) -> AclCreation:
    fields = {
        "resource_type": AclResourceType.TOPIC,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": AclPermission.ALLOW,
    }
    return AclCreation(**(fields | changes))  # type: ignore[arg-type]


def everything(**changes: object) -> DeleteAclsFilter:
    fields = {
        "resource_type_filter": AclResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": AclPermission.ANY,
    }
    return DeleteAclsFilter(**(fields | changes))  # type: ignore[arg-type]


def describe_all(**changes: object) -> DescribeAclsRequest:
    wanted = everything(**changes)
    return DescribeAclsRequest(**{name: getattr(wanted, name) for name in wanted.__struct_fields__})


def test_without_an_authorizer_there_are_no_acls() -> None:
    async def scenario(node: SimulatedNode) -> None:
        described = await node.call(describe_all(), 3, DescribeAclsResponse)
        created = await node.call(CreateAclsRequest(creations=[creation()]), 3, CreateAclsResponse)
        deleted = await node.call(DeleteAclsRequest(filters=[everything()]), 3, DeleteAclsResponse)
        codes = [described.error_code, created.results[0].error_code, deleted.filter_results[0].error_code]
        assert codes == [ErrorCode.SECURITY_DISABLED] * 3

    on_a_node(scenario, {})


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_created_described_and_deleted(version: int) -> None:
    async def scenario(node: SimulatedNode) -> None:
        request = CreateAclsRequest(creations=[creation(), creation(), creation("pay", host="10.0.0.1")])
        created = await node.call(request, version, CreateAclsResponse)
        assert [result.error_code for result in created.results] == [0, 0, 0]

        described = await node.call(describe_all(host_filter="*"), version, DescribeAclsResponse)
        [resource] = described.resources
        assert (resource.resource_name, len(resource.acls)) == ("orders", 1)
        assert (resource.acls[0].principal, resource.acls[0].operation) == ("User:alice", AclOperation.READ)

        deleted = await node.call(DeleteAclsRequest(filters=[everything()] * 2), version, DeleteAclsResponse)
        assert [len(result.matching_acls) for result in deleted.filter_results] == [2, 0]
        assert not (await node.call(describe_all(), version, DescribeAclsResponse)).resources

    on_a_node(scenario, OPEN)


def test_each_acl_that_cannot_be_kept_has_its_own_error() -> None:
    async def scenario(node: SimulatedNode) -> None:
        request = CreateAclsRequest(
            creations=[
                creation(resource_type=AclResourceType.CLUSTER),
                creation(),
                creation(name=""),
                creation(operation=77),
            ]
        )
        created = await node.call(request, 3, CreateAclsResponse)
        invalid = ErrorCode.INVALID_REQUEST
        assert [result.error_code for result in created.results] == [invalid, 0, invalid, invalid]
        unknown = await node.call(describe_all(operation=77), 3, DescribeAclsResponse)
        assert unknown.error_code == invalid

    on_a_node(scenario, OPEN)


def upsertion(name: str, password: str, iterations: int = 4_096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name,
        mechanism=SHA_256,
        iterations=iterations,
        salt=b"salt",
        salted_password=salted_password(SHA_256, password, b"salt", iterations),
    )


def test_users_are_made_described_and_deleted() -> None:
    async def scenario(node: SimulatedNode) -> None:
        request = AlterUserScramCredentialsRequest(
            upsertions=[upsertion("alice", "hunter2"), upsertion("bob", "x", 5)],
            deletions=[ScramCredentialDeletion(name="carol", mechanism=SHA_256)],
        )
        altered = await node.call(request, 0, AlterUserScramCredentialsResponse)
        assert {result.user: result.error_code for result in altered.results} == {
            "alice": 0,
            "bob": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "carol": ErrorCode.RESOURCE_NOT_FOUND,
        }
        kept = node.node.metadata.image.security.scram_credential(SHA_256, "alice")
        assert kept is not None
        assert check_password(SHA_256, kept, "hunter2")

        names = [UserName(name=name) for name in ("alice", "dora", "eve", "eve")]
        for users, expected in (
            (None, {"alice": 0}),
            (
                names,
                {"alice": 0, "dora": ErrorCode.RESOURCE_NOT_FOUND, "eve": ErrorCode.DUPLICATE_RESOURCE},
            ),
        ):
            described = await node.call(
                DescribeUserScramCredentialsRequest(users=users), 0, DescribeUserScramCredentialsResponse
            )
            assert {result.user: result.error_code for result in described.results} == expected
            infos = described.results[0].credential_infos
            assert [(info.mechanism, info.iterations) for info in infos] == [(SHA_256, 4_096)]

    on_a_node(scenario, {})


async def create_token(
    node: SimulatedNode, owner: str | None = None, renewer_type: str = "User", version: int = 3
) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(
        owner_principal_type="User" if owner else None if version >= 3 else "",
        owner_principal_name=owner if version >= 3 else "",
        renewers=[CreatableRenewers(principal_type=renewer_type, principal_name="carol")],
        max_lifetime_ms=-1,
    )
    return await node.call(request, version, CreateDelegationTokenResponse)


async def described_ids(node: SimulatedNode, *owners: str) -> list[str]:
    named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=owner) for owner in owners]
    request = DescribeDelegationTokenRequest(owners=named or None)
    return [token.token_id for token in (await node.call(request, 3, DescribeDelegationTokenResponse)).tokens]


def test_a_token_is_its_owners_and_its_renewers() -> None:
    async def scenario(node: SimulatedNode) -> None:
        node.log_in(ALICE)
        token = await create_token(node)
        assert (token.error_code, token.principal_name, len(token.hmac)) == (0, "alice", 64)
        assert token.issue_timestamp_ms < token.expiry_timestamp_ms < token.max_timestamp_ms
        assert await described_ids(node) == [token.token_id]
        assert await described_ids(node, "bob") == []

        node.log_in(BOB)
        assert await described_ids(node) == []
        renew = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1)
        refused = await node.call(renew, 2, RenewDelegationTokenResponse)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH

        node.log_in(Origin(host="h", principal=user("carol"), protocol=SecurityProtocol.SASL_SSL))
        assert await described_ids(node, "alice") == [token.token_id]
        renewed = await node.call(renew, 2, RenewDelegationTokenResponse)
        assert renewed.expiry_timestamp_ms > token.expiry_timestamp_ms
        expire = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1)
        assert (await node.call(expire, 2, ExpireDelegationTokenResponse)).error_code == 0
        gone = await node.call(expire, 2, ExpireDelegationTokenResponse)
        assert gone.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    on_a_node(scenario, AUTHORIZER | TOKENS)


@pytest.mark.parametrize(
    ("origin", "configs", "renewer_type", "expected"),
    [
        (Origin(host="h"), TOKENS, "User", ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (
            Origin(host="h", protocol=SecurityProtocol.SSL),
            TOKENS,
            "User",
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        ),
        (
            Origin(host="h", principal=user("a"), protocol=SecurityProtocol.SASL_SSL, by_token=True),
            TOKENS,
            "User",
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        ),
        (ALICE, {}, "User", ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
        (ALICE, TOKENS, "Group", ErrorCode.INVALID_PRINCIPAL_TYPE),
    ],
)
def test_who_gets_no_token_is_told_why(
    origin: Origin, configs: dict[str, str], renewer_type: str, expected: ErrorCode
) -> None:
    async def scenario(node: SimulatedNode) -> None:
        node.log_in(origin)
        assert (await create_token(node, renewer_type=renewer_type)).error_code == expected
        if renewer_type == "User":
            renew = RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1)
            assert (await node.call(renew, 2, RenewDelegationTokenResponse)).error_code == expected
            expire = ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1)
            assert (await node.call(expire, 2, ExpireDelegationTokenResponse)).error_code == expected
            describe = DescribeDelegationTokenRequest(owners=None)
            assert (await node.call(describe, 3, DescribeDelegationTokenResponse)).error_code == expected

    on_a_node(scenario, configs)


def test_a_secret_config_is_described_without_its_value() -> None:
    async def scenario(node: SimulatedNode) -> None:
        resource = DescribeConfigsResource(resource_type=4, resource_name="7", configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        answer = await node.call(request, 4, DescribeConfigsResponse)
        configs = {config.name: config for config in answer.results[0].configs}
        for name in ("delegation.token.secret.key", "listener.name.plaintext.ssl.key.password"):
            assert configs[name].is_sensitive
            assert configs[name].value is None
            assert {synonym.value for synonym in configs[name].synonyms} == {None}
        assert configs["listener.name.plaintext.ssl.client.auth"].value == "required"
        assert not configs["super.users"].is_sensitive
        assert "the master key" not in str(answer)

    own = {"listener.name.plaintext.ssl.key.password": "hunter2", "listener.name.plaintext.ssl.client.auth": "required"}
    on_a_node(scenario, TOKENS | own)


def test_a_token_for_somebody_else_takes_an_acl_where_there_is_an_authorizer() -> None:
    async def scenario(node: SimulatedNode) -> None:
        node.log_in(BOB)
        refused = await create_token(node, owner="alice")
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert refused.issue_timestamp_ms == -1
        node.log_in(Origin(host="h"))
        acl = creation(
            resource_type=AclResourceType.USER,
            resource_name="User:alice",
            principal="User:bob",
            operation=AclOperation.CREATE_TOKENS,
        )
        await node.call(CreateAclsRequest(creations=[acl]), 3, CreateAclsResponse)
        node.log_in(BOB)
        token = await create_token(node, owner="alice")
        assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "alice", "bob")

    on_a_node(scenario, OPEN | TOKENS)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_who_asked_for_a_token_is_told_where_there_is_room(version: int) -> None:
    async def scenario(node: SimulatedNode) -> None:
        node.log_in(ALICE)
        created = await create_token(node, version=version)
        request = DescribeDelegationTokenRequest(owners=None)
        [described] = (await node.call(request, version, DescribeDelegationTokenResponse)).tokens
        assert (created.error_code, described.principal_name) == (0, "alice")
        asked_by = "alice" if version >= 3 else ""
        assert created.token_requester_principal_name == described.token_requester_principal_name == asked_by

    on_a_node(scenario, TOKENS)
