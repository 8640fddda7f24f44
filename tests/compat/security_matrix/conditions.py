"""Who asks: users, what ACLs say of them, and where they come from.

Each has a user of its own name. What they may do was said to both nodes in the same requests.
"""

from typing import Final

import msgspec

from quorate.protocol.messages.create_acls import AclCreation
from quorate.security.acls import AclOperation, AclPermission, AclResourceType, PatternType
from tests.compat.security_matrix.names import ADMIN, OTHER, PREFIX

HOME: Final = "127.0.0.1"
ELSEWHERE: Final = "127.0.0.2"

_CLUSTER: Final = "kafka-cluster"
_NAMED: Final = (AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID)
_ALL_TYPES: Final = (*_NAMED, AclResourceType.CLUSTER, AclResourceType.DELEGATION_TOKEN, AclResourceType.USER)


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    resource_types: tuple[AclResourceType, ...] = _ALL_TYPES
    name: str = "*"
    pattern_type: PatternType = PatternType.LITERAL
    operation: AclOperation = AclOperation.ALL
    permission: AclPermission = AclPermission.ALLOW
    host: str = "*"

    def acls(self, user: str) -> list[AclCreation]:
        return [
            AclCreation(
                resource_type=resource_type,
                resource_name=_CLUSTER if resource_type is AclResourceType.CLUSTER else self.name,
                resource_pattern_type=self.pattern_type,
                principal=f"User:{user}",
                host=self.host,
                operation=self.operation,
                permission_type=self.permission,
            )
            for resource_type in self.resource_types
        ]


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    #: Nobody logs in without one.
    user: str | None
    rules: tuple[Rule, ...] = ()
    host: str = HOME
    #: Asked with the newest version of each API alone.
    is_fine: bool = False

    def acls(self) -> list[AclCreation]:
        return [] if self.user is None else [acl for rule in self.rules for acl in rule.acls(self.user)]


_ALLOW: Final = Rule()
_ALLOW_CLUSTER: Final = Rule(resource_types=(AclResourceType.CLUSTER,))
_ALLOW_TEAM: Final = Rule(resource_types=_NAMED, name=PREFIX, pattern_type=PatternType.PREFIXED)
_FROM_ELSEWHERE: Final = (Rule(host=ELSEWHERE),)


def _deny(name: str, pattern_type: PatternType = PatternType.LITERAL) -> Rule:
    return Rule(resource_types=_NAMED, name=name, pattern_type=pattern_type, permission=AclPermission.DENY)


_MAIN: Final = (
    Condition(name="nobody logged in", user=None),
    Condition(name="no ACL", user="stranger"),
    Condition(name="DENY", user="denied", rules=(_ALLOW, _deny(OTHER, PatternType.PREFIXED))),
    Condition(
        name="DENY, the cluster too",
        user="denied-all",
        rules=(
            _ALLOW,
            _deny(OTHER, PatternType.PREFIXED),
            Rule(resource_types=(AclResourceType.CLUSTER,), permission=AclPermission.DENY),
        ),
    ),
    Condition(name="PREFIXED", user="teammate", rules=(_ALLOW_TEAM,)),
    Condition(name="PREFIXED, and the cluster", user="lead", rules=(_ALLOW_TEAM, _ALLOW_CLUSTER)),
    Condition(name="another host", user="traveller", rules=_FROM_ELSEWHERE),
    Condition(name="the host of the ACL", user="arrived", rules=_FROM_ELSEWHERE, host=ELSEWHERE),
    Condition(name="super user", user=ADMIN),
)
_OPERATIONS: Final = tuple(
    operation
    for operation in AclOperation
    if operation not in (AclOperation.UNKNOWN, AclOperation.ANY, AclOperation.ALL)
)
CONDITIONS: Final = (
    *_MAIN,
    *(
        Condition(
            name=f"only {operation.name}",
            user=f"only-{operation.name.lower()}",
            rules=(Rule(operation=operation),),
            is_fine=True,
        )
        for operation in _OPERATIONS
    ),
    *(
        Condition(
            name=f"all but {operation.name}",
            user=f"all-but-{operation.name.lower()}",
            rules=(_ALLOW, Rule(operation=operation, permission=AclPermission.DENY)),
            is_fine=True,
        )
        for operation in _OPERATIONS
    ),
)
USERS: Final = tuple(condition.user for condition in CONDITIONS if condition.user is not None)
