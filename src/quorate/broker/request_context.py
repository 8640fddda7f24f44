"""Who sends a request, in which version, and how its connection can be held back."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from quorate.broker.request_access import FULL_ACCESS, RequestAccess
from quorate.security.listeners import SecurityProtocol
from quorate.security.principals import ANONYMOUS, KafkaPrincipal


def _never_muted(duration_ms: int) -> None:
    pass


def _never_held(until: "asyncio.Future[Any]") -> None:
    pass


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a connection, the same for all of its requests until it logs in again."""

    #: The client's address, without a port; empty for another node.
    host: str
    #: Whom it has shown to be; Kafka's name for one that did not have to.
    principal: KafkaPrincipal = ANONYMOUS
    #: Shown by a delegation token.
    by_token: bool = False
    #: The name of the listener that it came by; empty for one of another node.
    listener: str = ""
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


class RequestContext(msgspec.Struct, frozen=True, kw_only=True):
    api_version: int
    client_id: str | None
    origin: Origin
    #: Of the whole request.
    size_bytes: int = 0
    #: Reads nothing from the connection for so many milliseconds; what comes from another node is never held back.
    mute: Callable[[int], None] = _never_muted
    #: Serves no further request of the connection until something is done.
    hold: Callable[["asyncio.Future[Any]"], None] = _never_held
    #: Of a request in parts, in the loop's time: what is slow about it is given up then, for the sake of others.
    deadline_s: float | None = None
    #: What its sender may do.
    access: RequestAccess = FULL_ACCESS

    @property
    def client_host(self) -> str:
        return self.origin.host

    @property
    def principal(self) -> KafkaPrincipal:
        return self.origin.principal

    @property
    def listener(self) -> str:
        return self.origin.listener
