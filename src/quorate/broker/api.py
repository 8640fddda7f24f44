"""What a handler module declares: the request it serves, the versions, and the function that serves it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.protocol.schema import Request, Response

#: A response at once, one that comes later, or none at all (Produce with acks=0).
HandlerResult = Response | None | Awaitable[Response | None] | asyncio.Future[Response | None]
Handle = Callable[[Services, RequestContext, Any], HandlerResult]

#: The elements of all arrays together, of a request that is answered as a whole.
MAX_ELEMENTS = 50_000
#: The same for one that is answered in parts.
MAX_ELEMENTS_IN_PARTS = 200_000


class Api(msgspec.Struct, frozen=True, kw_only=True):
    request: type[Request]
    min_version: int
    max_version: int
    handle: Handle
    #: How a request with many elements is cut: the first of these that has more than fit into one part.
    parts: tuple[Parts, ...] = ()
    #: A request with more elements ends its connection before they are decoded.
    max_elements: int = MAX_ELEMENTS
    #: Requests are small beside what they carry, and must be served in the order in which they come.
    is_hot: bool = False

    def __post_init__(self) -> None:
        if self.parts and self.max_elements == MAX_ELEMENTS:
            msgspec.structs.force_setattr(self, "max_elements", MAX_ELEMENTS_IN_PARTS)
