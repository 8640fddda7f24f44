"""Kafka requests between nodes, over the links that they hold anyway: no listener of a peer's has to be known.

A request travels as its API key, its version and its body, and is served by the same handler that clients reach.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from struct import Struct
from typing import TypeVar, cast

from quorate.broker.handlers import APIS
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.ids import NodeId
from quorate.protocol.apis import ApiKey
from quorate.protocol.codec import decode, encode
from quorate.protocol.errors import ProtocolError
from quorate.protocol.schema import Request, Response
from quorate.transport.peers.bus import PeerBus
from quorate.transport.peers.channels import Sender
from quorate.transport.peers.errors import PeerProtocolError, PeerTimeout, PeerUnreachable
from quorate.transport.peers.frames import Channel

ResponseType = TypeVar("ResponseType", bound=Response)

_START = Struct(">hh")
#: Nodes ask nothing else of each other in this way.
_SERVED = frozenset({ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.WRITE_TXN_MARKERS})


class PeerRequests:
    def __init__(self, node_id: NodeId, peers: PeerBus) -> None:
        self._node_id = node_id
        self._peers = peers
        self._handle: Callable[[Request, int], Awaitable[Response]] = _not_yet

    def serve(self, services: Services) -> None:
        """Serve requests from now on. What this node asks is part of what it serves with, so that comes second."""
        self._handle = partial(_handle, services)
        self._peers.answer_requests(Channel.KAFKA, self.request_received)

    async def ask(
        self, node_id: NodeId, request: Request, version: int, response_type: type[ResponseType], timeout_ms: float
    ) -> ResponseType:
        """The node's answer; this node answers itself. Raises ``PeerError`` where there is none."""
        if node_id == self._node_id:
            return cast(ResponseType, await self._ask_self(request, version, timeout_ms))
        payload = b"".join([_START.pack(request.API_KEY, version), *encode(request, version)])
        return decode(response_type, await self._peers.request(Channel.KAFKA, node_id, payload, timeout_ms), version)

    async def _ask_self(self, request: Request, version: int, timeout_ms: float) -> Response:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._handle(request, version)
        except TimeoutError:
            raise PeerTimeout("this node did not answer itself in time") from None

    async def request_received(self, sender: Sender, payload: bytes) -> bytes:  # noqa: ARG002
        request, version = _read(payload)
        return b"".join(encode(await self._handle(request, version), version))


async def _not_yet(request: Request, version: int) -> Response:
    raise PeerUnreachable(f"this node serves no {type(request).__name__} of version {version} yet")


async def _handle(services: Services, request: Request, version: int) -> Response:
    context = RequestContext(api_version=version, client_id="peer", client_host="")
    result = APIS[request.API_KEY].handle(services, context, request)
    response = result if isinstance(result, Response) else await cast("asyncio.Future[Response | None]", result)
    assert response is not None  # Only Produce with acks=0 has none.
    return response


def _read(payload: bytes) -> tuple[Request, int]:
    if len(payload) < _START.size:
        raise PeerProtocolError("a Kafka request without its API key")
    api_key, version = _START.unpack_from(payload)
    if api_key not in _SERVED:
        raise PeerProtocolError(f"no node asks for API {api_key}")
    api = APIS[api_key]
    if not api.min_version <= version <= api.max_version:
        raise PeerProtocolError(f"no node asks for version {version} of API {api_key}")
    try:
        return decode(api.request, payload, version, _START.size), version
    except ProtocolError as error:
        raise PeerProtocolError(str(error)) from None
