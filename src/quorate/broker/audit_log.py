"""The audit log of a node: the logger ``quorate.audit``, what goes into it, and how much of that strangers can cause.

Denials are told, and with level ``debug`` what is allowed and who logs in. Failed logins are told where the audit log
has a file of its own: in the node's log they have a line already.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from quorate.broker.log_settings import AUDIT_LOGGER
from quorate.kernel.line_limit import LineLimit
from quorate.security.access import Checked
from quorate.security.audit import (
    AuditLevel,
    LoginAttempt,
    access_fields,
    access_line,
    audit_level,
    login_fields,
    login_line,
)
from quorate.security.authorizer import Requester

audit = logging.getLogger(AUDIT_LOGGER)

_LEVELS: Final = {AuditLevel.INFO: logging.INFO, AuditLevel.DEBUG: logging.DEBUG, AuditLevel.TRACE: logging.DEBUG - 5}
#: Denials of one principal in ten seconds. Then they are counted, so that nobody writes the log full, or over.
_MOST_DENIALS: Final = 500
#: Of principals whose lines are counted, the latest.
_MOST_PRINCIPALS: Final = 1_000


class AuditLog:
    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._limits: OrderedDict[str, LineLimit] = OrderedDict()

    def tells_allowed(self) -> bool:
        return audit.isEnabledFor(logging.DEBUG)

    def tell_access(self, requester: Requester, listener: str, request: str, checked: Sequence[Checked]) -> None:
        for each in checked:
            level = _LEVELS[audit_level(each)]
            if not audit.isEnabledFor(level):
                continue
            untold = 0 if each.verdict.is_allowed else self._admit(requester.principal)
            if untold is None:
                continue
            line = access_line(requester, request, each)
            _write(level, line, access_fields(requester, listener, request, each), untold)

    def tell_login(self, attempt: LoginAttempt, untold: int = 0) -> None:
        """``untold``: how many failed ones were left out before this one."""
        if attempt.is_allowed:
            if audit.isEnabledFor(logging.DEBUG):
                _write(logging.DEBUG, login_line(attempt), login_fields(attempt), untold)
        elif not audit.propagate and audit.isEnabledFor(logging.INFO):
            _write(logging.INFO, login_line(attempt), login_fields(attempt), untold)

    def _admit(self, principal: str) -> int | None:
        limit = self._limits.get(principal)
        if limit is None:
            limit = self._limits[principal] = LineLimit(_MOST_DENIALS)
            if len(self._limits) > _MOST_PRINCIPALS:
                self._limits.popitem(last=False)
        self._limits.move_to_end(principal)
        return limit.admit(self._now_s())


def _write(level: int, line: str, fields: Mapping[str, Any], untold: int) -> None:
    if untold:
        line, fields = f"{line} untold = {untold}", {**fields, "untold": untold}
    audit.log(level, _Whole(line), extra={"fields": fields})


class _Whole:
    """A line that is clipped in its parts already, and not to be cut in the middle of a name."""

    def __init__(self, line: str) -> None:
        self._line = line

    def __str__(self) -> str:
        return self._line
