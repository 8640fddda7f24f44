"""The port through which a coordinator's requests reach other nodes, and this one."""

from typing import Protocol, TypeVar

from quorate.kernel.ids import NodeId
from quorate.protocol.schema import Request, Response

ResponseType = TypeVar("ResponseType", bound=Response)


class AskNode(Protocol):
    """The part of ``PeerRequests`` that is needed here."""

    async def ask(
        self, node_id: NodeId, request: Request, version: int, response_type: type[ResponseType], timeout_ms: float
    ) -> ResponseType: ...
