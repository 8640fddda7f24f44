"""A client that asks coordinators, and goes on asking as real ones do."""

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, TypeVar

from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.schema import Request, Response
from tests.simulation.replication.clients import Client, NoAnswer
from tests.simulation.replication.cluster import ReplicatedCluster
from tests.simulation.replication.history import History
from tests.simulation.transactions.ledger import Attempts

R = TypeVar("R", bound=Response)

_LOOK_AGAIN = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_ASK_AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)


class Kind(IntEnum):
    """What FindCoordinator looks for."""

    GROUP = 0
    TRANSACTION = 1


class Coordinated(NamedTuple):
    """What somebody coordinates: a group, or the transactions of an id."""

    kind: Kind
    name: str


class GaveUp(Exception):
    """The client has ended, whatever it was about to do."""


class CoordinatedClient(Client):
    def __init__(self, cluster: ReplicatedCluster, history: History, name: str) -> None:
        super().__init__(cluster, history, name)
        self._coordinators: dict[Coordinated, int] = {}

    def require_running(self) -> None:
        if self.is_over:
            raise GaveUp

    async def ask(
        self,
        about: Coordinated,
        request: Request,
        version: int,
        answer_type: type[R],
        *,
        code_of: Callable[[R], int],
        attempts: Attempts | None = None,
    ) -> R:
        """The first answer that is about the request itself, and not about the way to the coordinator."""
        attempts = attempts or Attempts()
        while True:
            self.require_running()
            node_id = await self._coordinator(about)
            if node_id is not None:
                attempts.sent(self.world.now)
                try:
                    answer = await self.call(node_id, request, version, answer_type)
                except NoAnswer:
                    attempts.lost += 1
                    attempts.in_doubt += 1
                    self._coordinators.pop(about, None)
                else:
                    code = code_of(answer)
                    if code in _LOOK_AGAIN:
                        attempts.in_doubt += 1  # It may have written a record which its successor finds.
                        self._coordinators.pop(about, None)
                    elif code not in _ASK_AGAIN:
                        return answer
            await self.pause()

    async def _coordinator(self, about: Coordinated) -> int | None:
        if about not in self._coordinators:
            request = FindCoordinatorRequest(key_type=about.kind, coordinator_keys=[about.name])
            try:
                answer = await self.call(self.random.choice(self.cluster.node_ids), request, 4, FindCoordinatorResponse)
            except NoAnswer:
                return None
            (found,) = answer.coordinators
            if found.error_code != ErrorCode.NONE:
                return None
            self._coordinators[about] = found.node_id
        return self._coordinators[about]
