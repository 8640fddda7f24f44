"""A client's connections to the nodes: made when needed, and made anew when they end."""

import asyncio
from typing import TypeVar

from quorate.protocol.schema import Request, Response
from tests.simulation.cluster.answers import NodeView
from tests.simulation.cluster.cluster import CLIENT_PORT, Member, SimulatedCluster
from tests.simulation.world.kafka_connection import KafkaConnection

R = TypeVar("R", bound=Response)

_CONNECT_TIMEOUT_S = 2.0
#: A node gives up after 15 seconds; one that is frozen or cut off says nothing.
_ANSWER_TIMEOUT_S = 18.0


class NoAnswer(Exception):
    """The connection could not be made or ended, or nothing came in time."""


class Connections:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._open: dict[Member, tuple[KafkaConnection, NodeView]] = {}

    async def ask(self, member: Member, request: Request, version: int, answer_type: type[R]) -> tuple[R, NodeView]:
        """The answer, and what the node that gave it showed in that life."""
        try:
            connection, view = await self._connect(member)
            return await connection.call(request, version, answer_type, timeout_s=_ANSWER_TIMEOUT_S), view
        except (OSError, TimeoutError) as error:
            lost = self._open.pop(member, None)
            if lost is not None:
                lost[0].close()
            self._cluster.ledger.no_answer()
            raise NoAnswer from error

    async def _connect(self, member: Member) -> tuple[KafkaConnection, NodeView]:
        known = self._open.get(member)
        if known is not None and known[0].is_open:
            return known
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            connection = await KafkaConnection.open(member.config.listen.host, CLIENT_PORT)
        if not member.is_serving:  # Killed after it had taken the connection.
            connection.close()
            raise ConnectionResetError
        self._open[member] = connection, member.view
        return self._open[member]
