"""Users of a secured cluster, Quorate's or Apache Kafka's: how they log in, and what they may do."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from quorate.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from quorate.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from quorate.security.acls import AclOperation as Operation
from quorate.security.acls import AclPermission, AclResourceType, PatternType
from tests.eventually import eventually
from tests.integration.wire_client import WireClient

AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PLAIN_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
TOKEN_LOGIN: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

_TIMEOUT_S: Final = 30

Acl = TypeVar("Acl")


class ClusterWithUsers(Protocol):
    """An authorizer decides. The administrator needs no login (``bootstrap``), users come by SASL_SSL (``secured``)."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def secured(self) -> str: ...
    @property
    def ca(self) -> Path: ...


class Right(NamedTuple):
    """Operations by the names that ``kafka-acls`` has for them, and what they may be done to."""

    operations: tuple[str, ...]
    resource_type: ResourceType
    resource_name: str
    is_prefix: bool = False


def topic(name: str, *operations: str) -> Right:
    return Right(operations, ResourceType.TOPIC, name)


def topics_from(prefix: str, *operations: str) -> Right:
    return Right(operations, ResourceType.TOPIC, prefix, is_prefix=True)


def group(name: str, *operations: str) -> Right:
    return Right(operations, ResourceType.GROUP, name)


def groups_from(prefix: str, *operations: str) -> Right:
    return Right(operations, ResourceType.GROUP, prefix, is_prefix=True)


def transactional_ids_from(prefix: str, *operations: str) -> Right:
    return Right(operations, ResourceType.TRANSACTIONAL_ID, prefix, is_prefix=True)


def the_cluster(*operations: str) -> Right:
    return Right(operations, ResourceType.BROKER, "kafka-cluster")


def add_users(cluster: ClusterWithUsers, users: Mapping[str, Iterable[Right]]) -> None:
    """Each with its password, and what it may do; every node knows them when this returns."""
    admin = _administrator(cluster)
    for name in users:
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(name, credential, password_of(name).encode())
        admin.alter_user_scram_credentials([change])[name].result(_TIMEOUT_S)
    for name, rights in users.items():
        allow(cluster, name, *rights)
    _wait_for_all(cluster, "the users", lambda wire: set(users) <= _users(wire))


def allow(cluster: ClusterWithUsers, name: str, *rights: Right) -> None:
    bindings = [binding for right in rights for binding in _acls(AclBinding, name, right)]
    admin = _administrator(cluster)
    for future in admin.create_acls(bindings).values() if bindings else ():
        future.result(_TIMEOUT_S)
    _wait_for_all(cluster, "the rights", lambda wire: all(_missing(wire, name, each) == set() for each in rights))


def take_away(cluster: ClusterWithUsers, name: str, *rights: Right) -> None:
    filters = [each for right in rights for each in _acls(AclBindingFilter, name, right)]
    admin = _administrator(cluster)
    for future in admin.delete_acls(filters).values():
        assert future.result(_TIMEOUT_S), f"{name} did not have all of {rights}"
    _wait_for_all(
        cluster,
        "the rights to be gone",
        lambda wire: all(_missing(wire, name, each) == _operations(each) for each in rights),
    )


def password_of(name: str) -> str:
    """It ought to be found nowhere."""
    return f"{name}-S3cret!#42"


def client_properties(cluster: ClusterWithUsers, name: str, password: str | None = None) -> dict[str, str]:
    """As a user would write them for Apache Kafka's tools; the password may be a reference."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM_LOGIN} required username="{name}" password="{password or password_of(name)}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(cluster.ca),
    }


def librdkafka_settings(cluster: ClusterWithUsers, name: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.secured,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": name,
        "sasl.password": password_of(name),
        "ssl.ca.location": str(cluster.ca),
    }


def _administrator(cluster: ClusterWithUsers) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def _acls(kind: Callable[..., Acl], name: str, right: Right) -> list[Acl]:
    pattern = ResourcePatternType.PREFIXED if right.is_prefix else ResourcePatternType.LITERAL
    about = (right.resource_type, right.resource_name, pattern, f"User:{name}", "*")
    return [kind(*about, AclOperation[_code_name(each)], AclPermissionType.ALLOW) for each in right.operations]


def _code_name(operation: str) -> str:
    """``DescribeConfigs`` is DESCRIBE_CONFIGS."""
    return "".join(f"_{letter}" if letter.isupper() else letter for letter in operation).lstrip("_").upper()


def _wait_for_all(cluster: ClusterWithUsers, what: str, known_to: Callable[[WireClient], bool]) -> None:
    for address in cluster.bootstrap.split(","):
        with WireClient(address) as wire:
            eventually(lambda wire=wire: known_to(wire), f"{what} at {address}")  # type: ignore[misc]


def _users(wire: WireClient) -> set[str]:
    answer = wire.call(DescribeUserScramCredentialsRequest(users=None), 0, DescribeUserScramCredentialsResponse)
    return {result.user for result in answer.results}


def _missing(wire: WireClient, name: str, right: Right) -> set[Operation]:
    """Those of its operations that this node knows nothing of."""
    is_cluster = right.resource_type is ResourceType.BROKER
    request = DescribeAclsRequest(
        resource_type_filter=AclResourceType["CLUSTER" if is_cluster else right.resource_type.name],
        resource_name_filter=right.resource_name,
        pattern_type_filter=PatternType.PREFIXED if right.is_prefix else PatternType.LITERAL,
        principal_filter=f"User:{name}",
        host_filter=None,
        operation=Operation.ANY,
        permission_type=AclPermission.ALLOW,
    )
    answer = wire.call(request, 2, DescribeAclsResponse)
    return _operations(right) - {Operation(acl.operation) for resource in answer.resources for acl in resource.acls}


def _operations(right: Right) -> set[Operation]:
    return {Operation[_code_name(each)] for each in right.operations}
