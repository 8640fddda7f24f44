"""The audit log: who was let in and who did what, one line each, in Apache Kafka's words, and the same as fields.

Names come from outside. In a line no character of theirs ends it, hides text or starts what looks like another field.
"""

from enum import StrEnum
from typing import Any, Final

import msgspec

from quorate.kernel.errors import clip
from quorate.security.access import Checked
from quorate.security.acls import Acl, AclResourceType, PatternType
from quorate.security.authorizer import AclVerdict, Requester, Rule

_MAX_CHARACTERS: Final = 500
_RESOURCE_NAMES: Final = {
    AclResourceType.TOPIC: "Topic",
    AclResourceType.GROUP: "Group",
    AclResourceType.CLUSTER: "Cluster",
    AclResourceType.TRANSACTIONAL_ID: "TransactionalId",
    AclResourceType.DELEGATION_TOKEN: "DelegationToken",
    AclResourceType.USER: "User",
}
#: Of a name that is written as it is; any other stands between quotes.
_PLAIN: Final = frozenset("-._:/@*+~,=")


class AuditLevel(StrEnum):
    """Of Kafka's ``kafka.authorizer.logger``: a denial is told, what is allowed only where that is wanted."""

    INFO = "info"
    DEBUG = "debug"
    TRACE = "trace"


class LoginAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody has shown who they are, or could not."""

    principal: str | None
    host: str
    listener: str
    mechanism: str
    is_allowed: bool
    reason: str | None = None


def audit_level(checked: Checked) -> AuditLevel:
    if checked.verdict.rule is Rule.NO_AUTHORIZER:
        return AuditLevel.TRACE
    if checked.verdict.is_allowed:
        return AuditLevel.DEBUG
    return AuditLevel.TRACE if checked.is_quiet else AuditLevel.INFO


def access_line(requester: Requester, request: str, checked: Checked) -> str:
    """As Apache Kafka writes it, where no name is out of the ordinary."""
    return (
        f"Principal = {_word(requester.principal)} is {_outcome(checked.verdict.is_allowed)}"
        f" operation = {checked.operation.name} from host = {_word(requester.host)}"
        f" on resource = {_RESOURCE_NAMES[checked.resource_type]}:LITERAL:{_word(checked.name)}"
        f" for request = {request} with resourceRefCount = {checked.count} based on rule {_rule(checked.verdict)}"
    )


def access_fields(requester: Requester, listener: str, request: str, checked: Checked) -> dict[str, Any]:
    """The same for a log in JSON: values as they were said, but for their length."""
    verdict = checked.verdict
    return {
        "event": "access",
        "principal": clip(requester.principal, _MAX_CHARACTERS),
        "host": clip(requester.host, _MAX_CHARACTERS),
        "listener": clip(listener, _MAX_CHARACTERS),
        "api": request,
        "operation": checked.operation.name,
        "resource_type": checked.resource_type.name,
        "resource_name": clip(checked.name, _MAX_CHARACTERS),
        "pattern_type": PatternType.LITERAL.name,
        "count": checked.count,
        "allowed": verdict.is_allowed,
        "rule": str(verdict.rule),
        "acl": None if verdict.acl is None else _acl(verdict.acl),
    }


def login_line(attempt: LoginAttempt) -> str:
    who = "nobody" if attempt.principal is None else _word(attempt.principal)
    reason = "" if attempt.reason is None else f" reason = {_word(attempt.reason)}"
    return (
        f"Principal = {who} is {_outcome(attempt.is_allowed)} login by {_word(attempt.mechanism)}"
        f" from host = {_word(attempt.host)} on listener = {_word(attempt.listener)}{reason}"
    )


def login_fields(attempt: LoginAttempt) -> dict[str, Any]:
    return {
        "event": "login",
        "principal": None if attempt.principal is None else clip(attempt.principal, _MAX_CHARACTERS),
        "host": clip(attempt.host, _MAX_CHARACTERS),
        "listener": clip(attempt.listener, _MAX_CHARACTERS),
        "mechanism": clip(attempt.mechanism, _MAX_CHARACTERS),
        "allowed": attempt.is_allowed,
        "reason": None if attempt.reason is None else clip(attempt.reason, _MAX_CHARACTERS),
    }


def _outcome(is_allowed: bool) -> str:
    return "Allowed" if is_allowed else "Denied"


def _rule(verdict: AclVerdict) -> str:
    return str(verdict.rule) if verdict.acl is None else f"{verdict.rule}(acl={_acl(verdict.acl)})"


def _acl(acl: Acl) -> str:
    return (
        f"StandardAcl(resourceType={acl.resource_type.name}, resourceName={_word(acl.resource_name)},"
        f" patternType={PatternType(acl.pattern_type).name}, principal={_word(acl.principal)},"
        f" host={_word(acl.host)}, operation={acl.operation.name}, permissionType={acl.permission.name})"
    )


def _word(text: str) -> str:
    """As it is where it is one plain word, otherwise between quotes, so that it cannot look like anything else."""
    clipped = clip(text, _MAX_CHARACTERS)
    if clipped and all(each.isalnum() or each in _PLAIN for each in clipped):
        return clipped
    quoted = _clean(clipped.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{quoted}"'


def _clean(text: str) -> str:
    """Without characters that end a line, move the cursor or turn the direction of writing."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "backslashreplace").decode()
        for each in clip(text, _MAX_CHARACTERS)
    )
