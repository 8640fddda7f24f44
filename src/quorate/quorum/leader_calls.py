"""Asks the quorum leader, wherever it is and through every change of it.

The node itself answers when it leads. Otherwise the leader that it knows is asked, or, while it knows none, any node
that can be reached: those that do not lead say who does.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Protocol

from quorate.kernel.errors import UNREADABLE
from quorate.kernel.ids import NodeId, QuorumLeader
from quorate.kernel.tasks import Notifier, Superseded, unless_superseded
from quorate.quorum.core.leader_requests import LeaderAnswer, LeaderRequest, Redirect, decode_answer, encode
from quorate.quorum.errors import NotQuorumLeader
from quorate.transport.peers.errors import OutcomeUnknown, PeerUnreachable
from quorate.transport.peers.frames import Channel

logger = logging.getLogger(__name__)

_PAUSE_MIN_MS = 10
_PAUSE_MAX_MS = 100
#: One attempt; a leader that is alive but cut off is given up after this.
_ATTEMPT_TIMEOUT_MS = 2_000


class NoQuorum(Exception):
    """No leader answered before the deadline. ``may_be_done`` tells whether the request can have had an effect."""

    def __init__(self, *, may_be_done: bool) -> None:
        super().__init__("the quorum leader did not answer in time")
        self.may_be_done = may_be_done


class PeerCalls(Protocol):
    """The part of ``PeerBus`` that is needed here."""

    async def request(self, channel: Channel, node_id: NodeId, payload: bytes, timeout_ms: float) -> bytes: ...

    def is_connected(self, node_id: NodeId) -> bool: ...


class LeaderCalls:
    def __init__(
        self,
        node_id: NodeId,
        peers: PeerCalls,
        *,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        known_nodes: Callable[[], list[NodeId]],
        known_leader: Callable[[], QuorumLeader | None],
        answer: Callable[[LeaderRequest], Awaitable[LeaderAnswer]],
        on_referral: Callable[[NodeId, str], None],
    ) -> None:
        """``on_referral`` is told where a node says that the leader is."""
        self._node_id = node_id
        self._peers = peers
        self._loop = loop
        self._random = random
        self._known_nodes = known_nodes
        self._known_leader = known_leader
        self._answer = answer
        self._on_referral = on_referral
        self._leader_changes = Notifier(loop)

    def leader_changed(self) -> None:
        """Wake those who wait for a leader."""
        self._leader_changes.notify()

    async def wait_for_leader(self, timeout_ms: float) -> None:
        """Return when somebody is known to lead, or at the deadline."""
        deadline = self._loop.time() + timeout_ms / 1000
        while self._known_leader() is None and (left_s := deadline - self._loop.time()) > 0:
            await asyncio.wait([self._leader_changes.next_change], timeout=left_s)

    async def ask(self, request: LeaderRequest, timeout_ms: float) -> tuple[LeaderAnswer, bool]:
        """The leader's answer, and whether an earlier attempt may have had an effect already.

        So only requests that may be repeated are asked this way. Raises ``NoQuorum`` at the deadline.
        """
        deadline = self._loop.time() + timeout_ms / 1000
        may_be_done = False
        hint: QuorumLeader | None = None
        while (left_ms := (deadline - self._loop.time()) * 1000) > 0:
            leader_changed = self._leader_changes.next_change
            believed = self._believed_leader(hint)
            target = self._any_reachable() if believed is None else believed.node_id
            hint = None
            if target is not None:
                attempt = self._attempt(target, request, min(left_ms, _ATTEMPT_TIMEOUT_MS))
                try:
                    answer = await unless_superseded(
                        self._loop, attempt, self._leader_changes, partial(self._is_superseded, target, believed)
                    )
                except (OutcomeUnknown, Superseded):
                    may_be_done = True
                else:
                    if not isinstance(answer, Redirect):
                        return answer, may_be_done
                    hint = answer.leader
                    if hint is not None and hint.node_id != target:
                        self._on_referral(hint.node_id, answer.address)
                        continue
            await self._pause(leader_changed, deadline)
        raise NoQuorum(may_be_done=may_be_done)

    def _believed_leader(self, hint: QuorumLeader | None) -> QuorumLeader | None:
        known = self._known_leader()
        return hint if hint is not None and (known is None or hint.term >= known.term) else known

    def _any_reachable(self) -> NodeId | None:
        reachable = [node for node in self._known_nodes() if self._peers.is_connected(node)]
        return self._random.choice(reachable) if reachable else None

    def _is_superseded(self, target: NodeId, believed: QuorumLeader | None) -> bool:
        """Do not wait for a node that is cut off once another is known to lead, in a later term than it was said to."""
        known = self._known_leader()
        return known is not None and known.node_id != target and (believed is None or known.term > believed.term)

    async def _attempt(self, target: NodeId, request: LeaderRequest, timeout_ms: float) -> LeaderAnswer:
        if target == self._node_id:
            try:
                return await asyncio.wait_for(self._own_answer(request), timeout_ms / 1000)
            except TimeoutError:
                raise OutcomeUnknown("no answer in time") from None
        try:
            return decode_answer(await self._peers.request(Channel.CONTROLLER, target, encode(request), timeout_ms))
        except PeerUnreachable:
            return Redirect(leader=None)
        except UNREADABLE as error:
            raise OutcomeUnknown(str(error)) from None

    async def _own_answer(self, request: LeaderRequest) -> LeaderAnswer:
        """The refusal stays in here: who waits for one that fails keeps it, and is kept by it."""
        try:
            return await self._answer(request)
        except NotQuorumLeader as refused:
            return Redirect(leader=refused.leader)

    async def _pause(self, leader_changed: "asyncio.Future[None]", deadline: float) -> None:
        """Wait for news of the leader, but not for long: it may have come back without a change."""
        pause = self._random.uniform(_PAUSE_MIN_MS, _PAUSE_MAX_MS) / 1000
        await asyncio.wait([leader_changed], timeout=max(0.0, min(pause, deadline - self._loop.time())))
