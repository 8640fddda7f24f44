"""ACLs: what one says, with Kafka's names and codes, and which of them a filter is about.

A name that no ACL may have is refused when the ACL is made, so that every stored one can be applied.
"""

from enum import IntEnum
from typing import Final

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError

WILDCARD: Final = "*"
WILDCARD_PRINCIPAL: Final = "User:*"
#: The one name of the resource type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"


class AclResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @classmethod
    def _missing_(cls, _value: object) -> "AclResourceType":
        return cls.UNKNOWN


class PatternType(IntEnum):
    UNKNOWN = 0
    #: Of filters: whatever type the pattern has.
    ANY = 1
    #: Of filters: all patterns that a resource of the name falls under.
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4

    @classmethod
    def _missing_(cls, _value: object) -> "PatternType":
        return cls.UNKNOWN


class AclOperation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    @classmethod
    def _missing_(cls, _value: object) -> "AclOperation":
        return cls.UNKNOWN


class AclPermission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3

    @classmethod
    def _missing_(cls, _value: object) -> "AclPermission":
        return cls.UNKNOWN


class Acl(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    resource_type: AclResourceType
    pattern_type: PatternType = PatternType.LITERAL
    resource_name: str
    #: As ``User:alice``.
    principal: str
    host: str = WILDCARD
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW


class AclFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What is None or ANY fits everything."""

    resource_type: AclResourceType = AclResourceType.ANY
    pattern_type: PatternType = PatternType.ANY
    resource_name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def check(self) -> None:
        if AclResourceType.UNKNOWN is self.resource_type or PatternType.UNKNOWN is self.pattern_type:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
        if AclOperation.UNKNOWN is self.operation or AclPermission.UNKNOWN is self.permission:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (AclResourceType.ANY, acl.resource_type)
            and (self.principal is None or self.principal == acl.principal)
            and self.matches_entry(acl)
            and self._matches_pattern(acl)
        )

    def matches_entry(self, acl: Acl) -> bool:
        return (
            (self.host is None or self.host == acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.resource_name == acl.resource_name
        if acl.pattern_type is PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name in (self.resource_name, WILDCARD)


def check_acl(acl: Acl) -> None:
    """INVALID_REQUEST where the ACL is none that can be kept."""
    problem = _problem(acl)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def _problem(acl: Acl) -> str | None:
    if acl.resource_type is AclResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    if acl.resource_type in (AclResourceType.UNKNOWN, AclResourceType.ANY):
        return f"Invalid resourceType {acl.resource_type.name}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {acl.pattern_type.name}"
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        return f"Invalid operation {acl.operation.name}"
    if acl.permission not in (AclPermission.DENY, AclPermission.ALLOW):
        return f"Invalid permissionType {acl.permission.name}"
    # Apache Kafka keeps such a one, and then fails whenever it comes to apply it.
    if ":" not in acl.principal:
        return f"The principal {acl.principal!r} is not of the form type:name, as in User:alice"
    return None
