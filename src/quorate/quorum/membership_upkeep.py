"""Keeps the quorum's membership in step with the brokers: whoever is registered follows the metadata log.

So a node joins by registering, and one that votes no more goes on as a learner until it is unregistered. Nobody becomes
a voter this way, and no voter is taken away.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from quorate.kernel.ids import NodeId
from quorate.kernel.tasks import TaskScope, logged_failures
from quorate.metadata.core.image import Broker, MetadataImage
from quorate.quorum.core.membership import (
    AddLearner,
    Member,
    Membership,
    MembershipChange,
    RemoveMember,
    UpdateMember,
    updated_member,
)
from quorate.quorum.errors import NotQuorumLeader
from quorate.quorum.raft_driver import RaftDriver
from quorate.transport.peers.errors import OutcomeUnknown

logger = logging.getLogger(__name__)

#: While another change is under way.
_RETRY_S = 0.05


class MembershipUpkeep:
    def __init__(
        self,
        driver: RaftDriver,
        image: Callable[[], MetadataImage],
        is_leading: Callable[[], bool],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._driver = driver
        self._image = image
        self._is_leading = is_leading
        self._tasks = TaskScope(loop, logged_failures(logger, "upkeep of the membership"))
        self._is_catching_up = False

    def look(self) -> None:
        """Brokers have changed, or this node has begun to lead."""
        if not self._is_catching_up and self._is_leading():
            self._is_catching_up = True
            self._tasks.spawn(self._catch_up())

    def stop(self) -> None:
        self._tasks.cancel_all()

    async def _catch_up(self) -> None:
        try:
            while self._is_leading():
                change = due_change(self._driver.membership, self._image().brokers)
                if change is None:
                    return
                await self._carry_out(change)
        finally:
            self._is_catching_up = False

    async def _carry_out(self, change: MembershipChange) -> None:
        try:
            await self._driver.change_membership(change)
        except (NotQuorumLeader, OutcomeUnknown):
            await asyncio.sleep(_RETRY_S)
        else:
            logger.info("membership follows the brokers change=%s", change)


def due_change(membership: Membership, brokers: Mapping[NodeId, Broker]) -> MembershipChange | None:
    """The first change that brings the membership nearer to the brokers."""
    for node_id, broker in brokers.items():
        member = membership.member(node_id)
        if member is None:
            return AddLearner(node_id, broker.peer_address, broker.directory_id)
        update = UpdateMember(node_id, broker.peer_address, broker.directory_id)
        if isinstance(updated_member(member, update), Member):
            return update
    # Voters have yet to register where a cluster is new.
    return next((RemoveMember(node_id) for node_id in sorted(membership.learners - brokers.keys())), None)
