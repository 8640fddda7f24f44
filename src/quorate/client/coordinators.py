"""Which broker coordinates a consumer group, asked for and remembered until it turns out wrong."""

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from quorate.client.answers import check
from quorate.client.cluster import Cluster
from quorate.client.cluster_metadata import Broker
from quorate.client.connection import Connection
from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import GroupId, NodeId
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

T = TypeVar("T")

_GROUP_KEY_TYPE: Final = 0
#: From this version on several keys go into one request, in another field.
_MANY_KEYS_VERSION: Final = 4


class Coordinators:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[GroupId, Broker] = {}
        self._lock = threading.Lock()

    def call(self, group_id: GroupId, what: str, ask: Callable[[Broker], T]) -> T:
        """Ask the group's coordinator, look for it again where it moved, and retry while it loads."""

        def attempt() -> T:
            with self._lock:
                coordinator = self._known.get(group_id)
            coordinator = coordinator or self._find(group_id)
            try:
                return ask(coordinator)
            except QuorateError:
                with self._lock:
                    self._known.pop(group_id, None)
                raise

        return self._cluster.retry(what, attempt)

    def _find(self, group_id: GroupId) -> Broker:
        def ask(connection: Connection) -> FindCoordinatorResponse:
            version = connection.versions.choose(FindCoordinatorRequest)
            if version >= _MANY_KEYS_VERSION:
                request = FindCoordinatorRequest(key_type=_GROUP_KEY_TYPE, coordinator_keys=[group_id])
            else:
                request = FindCoordinatorRequest(key=group_id)
            return connection.ask(request, FindCoordinatorResponse, version)

        answer = self._cluster.first_answer("FindCoordinator", ask)
        found = answer.coordinators[0] if answer.coordinators else answer
        check(found.error_code, f"find the coordinator of group {group_id}", found.error_message)
        coordinator = Broker(node_id=NodeId(found.node_id), address=Address(found.host, found.port))
        with self._lock:
            self._known[group_id] = coordinator
        return coordinator
