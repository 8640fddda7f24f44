"""What a handler module declares: the request it serves, the versions, and the function that serves it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from quorate.broker.request_parts import Parts
from quorate.protocol.schema import Request, Response

if TYPE_CHECKING:
    from quorate.broker.node import Node


def _never_muted(duration_ms: int) -> None:
    pass


def _never_held(until: "asyncio.Future[Any]") -> None:
    pass


class RequestContext(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, in which version of the request, and how to hold it back."""

    api_version: int
    client_id: str | None
    client_host: str
    #: Of the whole request.
    size_bytes: int = 0
    #: Reads nothing from the connection for so many milliseconds; what comes from another node is never held back.
    mute: Callable[[int], None] = _never_muted
    #: Serves no further request of the connection until something is done.
    hold: Callable[["asyncio.Future[Any]"], None] = _never_held
    #: Of a request in parts, in the loop's time: what is slow about it is given up then, for the sake of others.
    deadline_s: float | None = None
    #: Who the client has shown to be; Kafka's name for one that did not have to.
    user: str = "ANONYMOUS"


#: A response at once, one that comes later, or none at all (Produce with acks=0).
HandlerResult = Response | None | Awaitable[Response | None] | asyncio.Future[Response | None]
Handle = Callable[["Node", RequestContext, Any], HandlerResult]


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
