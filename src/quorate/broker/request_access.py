"""What the sender of one request may do, for handlers that alone know the names of what they are about to touch.

What the request itself names is judged before its handler sees it (``broker.access_control``).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from quorate.security.access import Access, Checked, check
from quorate.security.acls import CLUSTER_NAME, AclResourceType
from quorate.security.api_rules import AclAsk
from quorate.security.authorizer import Authorizer, NoAuthorizer, Requester, authorized_operations

#: Told every decision, for the audit log.
Tell = Callable[[Sequence[Checked]], None]


def _told_to_nobody(checked: Sequence[Checked]) -> None:
    pass


_ALL_OF_IT: Final = Access()


class RequestAccess:
    def __init__(
        self,
        authorizer: Authorizer,
        requester: Requester,
        tell: Tell = _told_to_nobody,
        named: Access = _ALL_OF_IT,
    ) -> None:
        self._authorizer = authorizer
        #: Whether nothing is asked of anybody.
        self.is_full = isinstance(authorizer, NoAuthorizer)
        self._requester = requester
        self._tell = tell
        #: Of what the request itself names.
        self.named = named

    def may(self, ask: AclAsk, name: str = CLUSTER_NAME) -> bool:
        return name in self.allowed(ask, (name,))

    def allowed(self, ask: AclAsk, names: Iterable[str]) -> frozenset[str]:
        """Those of the names that the sender may do it to."""
        wanted = frozenset(names)
        if self.is_full:
            return wanted
        outcomes = list(check(ask, sorted(wanted), self._authorizer, self._requester))
        self._tell(outcomes)
        denied = {outcome.name for outcome in outcomes if not outcome.verdict.is_allowed}
        return wanted - denied

    def operations(self, resource_type: AclResourceType, name: str = CLUSTER_NAME) -> int:
        """A bit for each operation on the resource that the sender may do, as Kafka's answers have it."""
        return authorized_operations(self._authorizer, self._requester, resource_type, name)


FULL_ACCESS: Final = RequestAccess(NoAuthorizer(), Requester(principal="", host=""))
