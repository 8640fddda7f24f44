"""Who may do what on this node: the rules of its file, the ACLs of the metadata image, and the audit log.

There is one where ``authorizer.class.name`` names it; otherwise everybody may do everything, and nothing is asked.
"""

from collections.abc import Callable
from functools import partial
from typing import cast

from quorate.broker.audit_log import AuditLog
from quorate.broker.request_access import RequestAccess
from quorate.broker.request_context import RequestContext
from quorate.metadata.core.config_definitions import ConfigValue
from quorate.metadata.core.image import MetadataImage
from quorate.protocol.schema import Request
from quorate.security.access import Access, examine
from quorate.security.authorizer import Requester, StandardAuthorizer
from quorate.security.principals import parse_super_users


class AccessControl:
    def __init__(
        self, image: Callable[[], MetadataImage], *, super_users: frozenset[str] = frozenset(), allow_without_acl: bool
    ) -> None:
        self._image = image
        self._super_users = super_users
        self._allow_without_acl = allow_without_acl
        self._audit = AuditLog()
        self._authorizer = self._made_of(image())

    def access_of(self, context: RequestContext, request: Request, named: Access) -> RequestAccess:
        """What the sender of a request may do, by the ACLs of this moment."""
        requester = _requester(context)
        tell = partial(self._audit.tell_access, requester, context.origin.listener, _name_of(request))
        return RequestAccess(self._current(), requester, tell, named)

    def examine(self, context: RequestContext, request: Request) -> Access:
        """What of the request itself is refused."""
        image, requester = self._image(), _requester(context)
        access = examine(
            request,
            context.api_version,
            api_key=request.API_KEY,
            authorizer=self._current(),
            requester=requester,
            topic_name=image.topic_names.get,  # type: ignore[arg-type]
            tells_allowed=self._audit.tells_allowed(),
        )
        self._audit.tell_access(requester, context.origin.listener, _name_of(request), access.checked)
        return access

    def _current(self) -> StandardAuthorizer:
        image = self._image()
        if image.security.acls is not self._acls:
            self._authorizer = self._made_of(image)
        return self._authorizer

    def _made_of(self, image: MetadataImage) -> StandardAuthorizer:
        self._acls = image.security.acls
        return StandardAuthorizer(self._acls, super_users=self._super_users, allow_without_acl=self._allow_without_acl)


def make_access_control(
    image: Callable[[], MetadataImage], config: Callable[[str], ConfigValue]
) -> AccessControl | None:
    if not config("authorizer.class.name"):
        return None
    return AccessControl(
        image,
        super_users=parse_super_users(cast(str, config("super.users"))),
        allow_without_acl=bool(config("allow.everyone.if.no.acl.found")),
    )


def _name_of(request: Request) -> str:
    return type(request).__name__.removesuffix("Request")


def _requester(context: RequestContext) -> Requester:
    return Requester(principal=str(context.principal), host=context.client_host)
