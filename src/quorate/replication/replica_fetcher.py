"""The follower's side of replication: asks every leader for what comes next, and puts it into the local logs.

There is a request under way to each node that leads something this node follows, and a second one as soon as there is
something new to ask for. A partition that fails waits alone. When a request fails, or the leader has forgotten the
session, all that was asked of that node is asked anew.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial

from quorate.kernel.ids import BrokerEpoch, NodeId
from quorate.kernel.tasks import FailureHandler, TaskScope, monotonic_ms
from quorate.replication.catch_up_throttle import CatchUpThrottle
from quorate.replication.core.follower import FetchPlan, FetchPlanConfig, PlannedFetch
from quorate.replication.core.messages import (
    FetchedPartition,
    FetchPosition,
    PartitionKey,
    ReplicaFetch,
    decode_answer,
    encode_fetch,
)
from quorate.replication.following import Applied, Following
from quorate.replication.partition import Partition
from quorate.transport.peers.errors import PeerError, PeerProtocolError

logger = logging.getLogger(__name__)

_REQUEST_TIMEOUT_MS = 10_000
_MAX_REQUESTS_UNDER_WAY = 2
_FULL_DISK_BACKOFF_MS = 500
#: Each takes the leader some 10 µs in one turn of its loop.
_REQUEST_MAX_PARTITIONS = 500

#: Sends a request to a node and has its answer read as it comes; ``PeerError`` where there is none.
Call = Callable[[NodeId, bytes, float, Callable[[memoryview], None]], Awaitable[None]]


class ReplicaFetcher:
    def __init__(
        self,
        node_id: NodeId,
        broker_epoch: BrokerEpoch,
        loop: asyncio.AbstractEventLoop,
        call: Call,
        *,
        first_session: int,
        on_failure: FailureHandler,
        throttle: CatchUpThrottle | None = None,
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._loop = loop
        self._call = call
        self._on_failure = on_failure
        self._throttle = throttle
        self._next_session = first_session
        self._plan: FetchPlan[PartitionKey] = FetchPlan(FetchPlanConfig())
        self._partitions: dict[PartitionKey, Partition] = {}
        self._sessions: dict[NodeId, _LeaderSession] = {}
        self._stopped = False

    def follow(self, partition: Partition) -> None:
        """Fetch the partition from the leader that it follows."""
        assert isinstance(partition.role, Following)
        leader = partition.role.leader
        key = _key(partition)
        self._partitions[key] = partition
        self._plan.follow(key, leader)
        self._pump_soon(leader.node_id)

    def unfollow(self, partition: Partition) -> None:
        key = _key(partition)
        self._plan.unfollow(key)
        self._partitions.pop(key, None)

    def synced(self, partition: Partition) -> None:
        """What was fetched last is durable: the next request may say so."""
        for session in self._sessions.values():
            planned = session.syncing.pop(_key(partition), None)
            if planned is not None:
                self._plan.answered(planned)
                self._pump_soon(session.node_id)

    def peer_connected(self, node_id: NodeId) -> None:
        if node_id in self._plan.leaders():
            self._pump_soon(node_id)

    def stop(self) -> None:
        self._stopped = True
        for session in self._sessions.values():
            session.stop()

    def _session(self, node_id: NodeId) -> "_LeaderSession":
        session = self._sessions.get(node_id)
        if session is None:
            session = self._sessions[node_id] = _LeaderSession(
                node_id, self._new_number(), TaskScope(self._loop, self._on_failure)
            )
        return session

    def _new_number(self) -> int:
        self._next_session += 1
        return self._next_session

    def _pump_soon(self, node_id: NodeId) -> None:
        """At the end of the loop turn, so that all that became ready in it makes one request."""
        session = self._session(node_id)
        if not session.pump_scheduled:
            session.pump_scheduled = True
            self._loop.call_soon(self._pump, session)

    def _pump(self, session: "_LeaderSession") -> None:
        session.pump_scheduled = False
        if self._stopped or len(session.requests) >= _MAX_REQUESTS_UNDER_WAY:
            return
        now_ms = self._now_ms()
        fetches = self._fetches(session, now_ms)
        if fetches or (session.asked and not session.requests):
            request = ReplicaFetch(session.number, self._broker_epoch, fetches)
            session.requests.spawn(self._request(session, session.number, encode_fetch(request)))
        if self._plan.is_ready(session.node_id):
            self._pump_soon(session.node_id)
        self._wake_after_backoff(session, now_ms)

    def _fetches(self, session: "_LeaderSession", now_ms: int) -> list[FetchPosition]:
        fetches = []
        for planned in self._plan.next_fetch(session.node_id, now_ms, _REQUEST_MAX_PARTITIONS):
            partition = self._partitions[planned.partition]
            role = partition.role
            if not isinstance(role, Following) or partition.failure is not None:
                self._plan.unfollow(planned.partition)
                continue
            if not role.may_ask:
                session.syncing[planned.partition] = planned
                continue
            if self._is_held_back(planned, partition, now_ms):
                continue
            session.asked[planned.partition] = planned
            fetches.append(role.next_fetch())
        return fetches

    def _is_held_back(self, planned: PlannedFetch[PartitionKey], partition: Partition, now_ms: int) -> bool:
        """Whether the replica has taken enough for now, in which case it is asked for later."""
        if partition.room.refusal is not None:
            self._plan.defer(planned, now_ms + _FULL_DISK_BACKOFF_MS)
            return True
        if self._throttle is None or not self._throttle.applies_to(partition.identity, self._node_id):
            return False
        wait_s = self._throttle.wait_s()
        if wait_s > 0:
            self._plan.defer(planned, now_ms + math.ceil(wait_s * 1000))
        return wait_s > 0

    async def _request(self, session: "_LeaderSession", number: int, payload: bytes) -> None:
        try:
            await self._call(session.node_id, payload, _REQUEST_TIMEOUT_MS, partial(self._answered, session, number))
        except (PeerError, PeerProtocolError) as error:
            logger.debug("replica fetch failed leader=%s error=%s", session.node_id, error)
            self._start_over(session, number)
        # This request is still among those under way, until the task is done.
        self._loop.call_soon(self._pump_soon, session.node_id)

    def _answered(self, session: "_LeaderSession", number: int, payload: memoryview) -> None:
        answer = decode_answer(payload)
        if number == session.number:
            for fetched in answer.partitions:
                self._apply(session, fetched)
            if not answer.is_known:
                self._start_over(session, number)

    def _apply(self, session: "_LeaderSession", fetched: FetchedPartition) -> None:
        key = fetched.fetch.key
        planned = session.asked.get(key)
        if planned is None or planned.leader_epoch != fetched.fetch.leader_epoch:
            return  # Late: this is not what is asked for now.
        del session.asked[key]
        partition = self._partitions.get(key)
        if partition is None:
            return
        if self._throttle is not None and self._throttle.applies_to(partition.identity, self._node_id):
            self._throttle.moved(len(fetched.records))
        role = partition.role
        applied = role.apply(fetched) if isinstance(role, Following) else Applied.BACK_OFF
        if applied is Applied.SYNCING:
            session.syncing[key] = planned
        elif applied is Applied.DONE:
            self._plan.answered(planned)
        else:
            self._plan.failed(planned, self._now_ms())

    def _start_over(self, session: "_LeaderSession", number: int) -> None:
        if number != session.number:
            return
        session.number = self._new_number()
        now_ms = self._now_ms()
        for planned in session.asked.values():
            self._plan.failed(planned, now_ms)
        session.asked.clear()
        self._wake_after_backoff(session, now_ms)

    def _wake_after_backoff(self, session: "_LeaderSession", now_ms: int) -> None:
        ready_ms = self._plan.next_ready_ms(session.node_id)
        if ready_ms is None or session.backoff is not None or self._stopped:
            return
        delay_s = max(0.001, (ready_ms - now_ms) / 1000)
        session.backoff = self._loop.call_later(delay_s, self._backoff_over, session)

    def _backoff_over(self, session: "_LeaderSession") -> None:
        session.backoff = None
        self._pump(session)

    def _now_ms(self) -> int:
        return monotonic_ms(self._loop)


class _LeaderSession:
    """What is under way with one node."""

    def __init__(self, node_id: NodeId, number: int, requests: TaskScope) -> None:
        self.node_id = node_id
        self.number = number
        #: Asked for and not answered.
        self.asked: dict[PartitionKey, PlannedFetch[PartitionKey]] = {}
        #: Answered, and not yet on the disk.
        self.syncing: dict[PartitionKey, PlannedFetch[PartitionKey]] = {}
        self.requests = requests
        self.pump_scheduled = False
        self.backoff: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        self.requests.cancel_all()
        if self.backoff is not None:
            self.backoff.cancel()


def _key(partition: Partition) -> PartitionKey:
    return partition.identity.topic_id, partition.identity.partition
