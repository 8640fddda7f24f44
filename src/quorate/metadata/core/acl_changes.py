"""Deciding changes of ACLs."""

from typing import Final

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.metadata.core.security_commands import CreateAcl, DeleteAcls
from quorate.metadata.core.security_records import AclCreated, AclDeleted
from quorate.metadata.core.security_state import SecurityState
from quorate.security.acls import check_acl

#: Of one command, as in Apache Kafka: all nodes apply in one turn what is decided together.
MAX_DELETED: Final = 10_000


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
