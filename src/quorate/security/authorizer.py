"""What somebody may do: the rules of Apache Kafka's StandardAuthorizer, on one immutable set of ACLs.

A DENY wins over any ALLOW. Where no ACL of a resource is about somebody, they are refused; where a resource has no ACL
at all, ``allow.everyone.if.no.acl.found`` decides. Some operations imply that the resource may be described, in an
ALLOW and not in a DENY.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from quorate.security.acl_index import AclIndex
from quorate.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)

_Op = AclOperation

#: What the answers that list authorized operations are about.
SUPPORTED_OPERATIONS: Final[Mapping[AclResourceType, frozenset[AclOperation]]] = {
    AclResourceType.TOPIC: frozenset(
        {
            _Op.READ,
            _Op.WRITE,
            _Op.CREATE,
            _Op.DESCRIBE,
            _Op.DELETE,
            _Op.ALTER,
            _Op.DESCRIBE_CONFIGS,
            _Op.ALTER_CONFIGS,
        }
    ),
    AclResourceType.GROUP: frozenset({_Op.READ, _Op.DESCRIBE, _Op.DELETE, _Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS}),
    AclResourceType.CLUSTER: frozenset(
        {
            _Op.CREATE,
            _Op.CLUSTER_ACTION,
            _Op.DESCRIBE_CONFIGS,
            _Op.ALTER_CONFIGS,
            _Op.IDEMPOTENT_WRITE,
            _Op.ALTER,
            _Op.DESCRIBE,
        }
    ),
    AclResourceType.TRANSACTIONAL_ID: frozenset({_Op.DESCRIBE, _Op.WRITE, _Op.TWO_PHASE_COMMIT}),
    AclResourceType.DELEGATION_TOKEN: frozenset({_Op.DESCRIBE}),
    AclResourceType.USER: frozenset({_Op.CREATE_TOKENS, _Op.DESCRIBE_TOKENS}),
}
#: In an answer that was not asked for them.
OPERATIONS_NOT_ASKED_FOR: Final = -(2**31)

#: In an ALLOW, what else lets somebody do it. ALL always does.
_IMPLIED_BY: Final[Mapping[AclOperation, frozenset[AclOperation]]] = {
    _Op.DESCRIBE: frozenset({_Op.READ, _Op.WRITE, _Op.DELETE, _Op.ALTER}),
    _Op.DESCRIBE_CONFIGS: frozenset({_Op.ALTER_CONFIGS}),
}
#: No resource has this name; asking for it finds out who needs no ACL.
_NO_RESOURCE: Final = "hardcode"


class Requester(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    #: As ``User:alice``.
    principal: str
    #: The address that the connection comes from, without a port.
    host: str


class Rule(StrEnum):
    """Why somebody may or may not, in the words of Apache Kafka's audit log."""

    SUPER_USER = "SuperUser"
    MATCHING_ACL = "MatchingAcl"
    DEFAULT_ALLOW = "DefaultAllow"
    DEFAULT_DENY = "DefaultDeny"
    #: There is no authorizer.
    NO_AUTHORIZER = "NoAuthorizer"


class AclVerdict(msgspec.Struct, frozen=True, gc=False):
    is_allowed: bool
    rule: Rule
    acl: Acl | None = None


class Authorizer(Protocol):
    """What handlers ask. All answers are local, and true for the image that it was made of."""

    def authorize(
        self, requester: Requester, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> AclVerdict: ...

    def may_on_any(self, requester: Requester, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Whether there can be a resource of the type that the requester may do it to."""
        ...


class NoAuthorizer:
    """Of a cluster without ``authorizer.class.name``."""

    _ALLOWED: Final = AclVerdict(True, Rule.NO_AUTHORIZER)

    def authorize(
        self,
        requester: Requester,  # noqa: ARG002
        operation: AclOperation,  # noqa: ARG002
        resource_type: AclResourceType,  # noqa: ARG002
        name: str,  # noqa: ARG002
    ) -> AclVerdict:
        return self._ALLOWED

    def may_on_any(
        self,
        requester: Requester,  # noqa: ARG002
        operation: AclOperation,  # noqa: ARG002
        resource_type: AclResourceType,  # noqa: ARG002
    ) -> bool:
        return True


class StandardAuthorizer:
    def __init__(
        self, acls: AclIndex, *, super_users: frozenset[str] = frozenset(), allow_without_acl: bool = False
    ) -> None:
        self._acls = acls
        self._super_users = super_users
        self._default = AclVerdict(True, Rule.DEFAULT_ALLOW) if allow_without_acl else _DEFAULT_DENY

    def authorize(
        self, requester: Requester, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> AclVerdict:
        if requester.principal in self._super_users:
            return _SUPER_USER
        allowed: Acl | None = None
        for acl in self._acls.for_resource(resource_type, name, (requester.principal, WILDCARD_PRINCIPAL)):
            if acl.host not in (WILDCARD, requester.host) or not _covers(acl, operation):
                continue
            if acl.permission is AclPermission.DENY:
                return AclVerdict(False, Rule.MATCHING_ACL, acl)
            allowed = acl
        if allowed is not None:
            return AclVerdict(True, Rule.MATCHING_ACL, allowed)
        if self._default.is_allowed and self._acls.has_any_for(resource_type, name):
            return _DEFAULT_DENY
        return self._default

    def may_on_any(self, requester: Requester, operation: AclOperation, resource_type: AclResourceType) -> bool:
        if self.authorize(requester, operation, resource_type, _NO_RESOURCE).is_allowed:
            return True
        allowed: list[Acl] = []
        denied: set[tuple[PatternType, str]] = set()
        for acl in self._acls.of_type(resource_type, (requester.principal, WILDCARD_PRINCIPAL)):
            # Here nothing is implied by anything: so it is in Apache Kafka.
            if acl.host not in (WILDCARD, requester.host) or acl.operation not in (operation, AclOperation.ALL):
                continue
            if acl.permission is AclPermission.ALLOW:
                allowed.append(acl)
            elif acl.pattern_type is PatternType.LITERAL and acl.resource_name == WILDCARD:
                return False
            else:
                denied.add((acl.pattern_type, acl.resource_name))
        return any(_is_open(acl, denied) for acl in allowed)


def is_allowed(
    authorizer: Authorizer, requester: Requester, operation: AclOperation, resource_type: AclResourceType, name: str
) -> bool:
    return authorizer.authorize(requester, operation, resource_type, name).is_allowed


def allowed_names(
    authorizer: Authorizer,
    requester: Requester,
    operation: AclOperation,
    resource_type: AclResourceType,
    names: Iterable[str],
) -> frozenset[str]:
    """Those of the names that the requester may do it to; each is decided once."""
    return frozenset(
        name for name in set(names) if authorizer.authorize(requester, operation, resource_type, name).is_allowed
    )


def authorized_operations(
    authorizer: Authorizer, requester: Requester, resource_type: AclResourceType, name: str = CLUSTER_NAME
) -> int:
    """A bit for each operation on the resource that the requester may do, as Kafka's answers have it."""
    return sum(
        1 << operation
        for operation in SUPPORTED_OPERATIONS[resource_type]
        if authorizer.authorize(requester, operation, resource_type, name).is_allowed
    )


def _covers(acl: Acl, operation: AclOperation) -> bool:
    if acl.operation in (operation, AclOperation.ALL):
        return True
    return acl.permission is AclPermission.ALLOW and acl.operation in _IMPLIED_BY.get(operation, ())


def _is_open(allowed: Acl, denied: set[tuple[PatternType, str]]) -> bool:
    """Whether an ALLOW leaves anything that no DENY takes away again."""
    name = allowed.resource_name
    if allowed.pattern_type is PatternType.LITERAL and name == WILDCARD:
        return True
    if allowed.pattern_type is PatternType.LITERAL and (PatternType.LITERAL, name) in denied:
        return False
    return not any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))


_SUPER_USER: Final = AclVerdict(True, Rule.SUPER_USER)
_DEFAULT_DENY: Final = AclVerdict(False, Rule.DEFAULT_DENY)
