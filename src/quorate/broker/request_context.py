"""Who sends a request, in which version, and how its connection can be held back."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec


def _never_muted(duration_ms: int) -> None:
    pass


def _never_held(until: "asyncio.Future[Any]") -> None:
    pass


class RequestContext(msgspec.Struct, frozen=True, kw_only=True):
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
