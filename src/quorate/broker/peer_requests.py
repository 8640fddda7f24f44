"""Kafka requests between nodes, over the links that they hold anyway: no listener of a peer's has to be known.

A request travels as its API key, its version and its body, and is served by the same handler that clients reach.
"""

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, TypeVar, cast

from quorate.broker.api import RequestContext
from quorate.kernel.ids import NodeId
from quorate.protocol.apis import ApiKey
from quorate.protocol.codec import decode, encode
from quorate.protocol.errors import ProtocolError
from quorate.protocol.schema import Request, Response
from quorate.transport.peers.errors import PeerProtocolError, PeerTimeout

if TYPE_CHECKING:
    from quorate.broker.node import Node

ResponseType = TypeVar("ResponseType", bound=Response)

_START = Struct(">hh")
#: Nodes ask nothing else of each other in this way.
_SERVED = frozenset({ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.WRITE_TXN_MARKERS})


class PeerRequests:
    def __init__(self, node: "Node") -> None:
        self._node = node

    async def ask(
        self, node_id: NodeId, request: Request, version: int, response_type: type[ResponseType], timeout_ms: float
    ) -> ResponseType:
        """The node's answer; this node answers itself. Raises ``PeerError`` where there is none."""
        if node_id == self._node.config.node_id:
            return cast(ResponseType, await self._ask_self(request, version, timeout_ms))
        payload = b"".join([_START.pack(request.API_KEY, version), *encode(request, version)])
        return decode(response_type, await self._node.quorum.call_peer(node_id, payload, timeout_ms), version)

    async def _ask_self(self, request: Request, version: int, timeout_ms: float) -> Response:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._handle(request, version)
        except TimeoutError:
            raise PeerTimeout("this node did not answer itself in time") from None

    async def serve(self, payload: bytes) -> bytes:
        request, version = _read(payload)
        return b"".join(encode(await self._handle(request, version), version))

    async def _handle(self, request: Request, version: int) -> Response:
        from quorate.broker.handlers import APIS

        context = RequestContext(api_version=version, client_id="peer", client_host="")
        result = APIS[request.API_KEY].handle(self._node, context, request)
        response = result if isinstance(result, Response) else await cast("asyncio.Future[Response | None]", result)
        assert response is not None
        return response


def _read(payload: bytes) -> tuple[Request, int]:
    # Imported late: the handlers know the node, which is made of this.
    from quorate.broker.handlers import APIS

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
