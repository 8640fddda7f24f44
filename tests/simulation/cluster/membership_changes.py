"""Nodes that join, become voters and leave while the cluster is at work."""

import asyncio

from quorate.kernel.errors import QuorateError
from quorate.metadata.core.command_codec import encode_commands
from quorate.metadata.core.commands import UnregisterBroker
from quorate.quorum.core.leader_requests import ChangeRefused, Done, LeaderRequest, Promote, Remove, Submit, Submitted
from quorate.quorum.leader_calls import NoQuorum
from tests.simulation.cluster.cluster import Member, SimulatedCluster
from tests.simulation.world.host import HostDied

_RETRY_S = 0.3
_ASK_TIMEOUT_MS = 3_000
#: Of the nodes that leave.
_RETURN_SHARE = 0.5
#: Of those that return.
_LOST_DISK_SHARE = 0.5


class MembershipChanges:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._random = cluster.world.random

    async def run(self) -> None:
        """The learners become voters, one after the other; then, where enough are left, some node leaves."""
        learners = [member for member in self._cluster.members if member.node_id in self._cluster.shape.learners]
        for member in learners:
            await self._world.sleep(self._random.random() * 2)
            await self._ask(Promote(node_id=member.node_id))
        if len(self._cluster.members) > 3 or not learners:
            member = self._random.choice(self._cluster.members)
            # Clients want three replicas meanwhile.
            returns = len(self._cluster.members) > 3 and self._random.random() < _RETURN_SHARE
            if returns and self._random.random() < _LOST_DISK_SHARE:
                await self._replace_disk(member)
                return
            await self._remove(member)
            if returns:
                await self._bring_back(member)

    async def _remove(self, member: Member) -> None:
        await self._retire(member)
        await self._ask(Remove(node_id=member.node_id))
        self._cluster.kill(member)

    async def _retire(self, member: Member) -> None:
        while member.is_claimed:
            await self._world.sleep(_RETRY_S)
        member.is_claimed = member.is_retired = True

    async def _replace_disk(self, member: Member) -> None:
        """It starts again with an empty one, and is kept out until it was removed."""
        await self._retire(member)
        self._cluster.lose_disk(member)
        starting = asyncio.ensure_future(self._cluster.bring_up(member))
        await self._world.sleep(self._random.random() * 4)
        assert not member.is_serving, "a node that lost what it acknowledged was let in"
        await self._ask(Remove(node_id=member.node_id))
        await self._unregister(member)
        await self._ask(Remove(node_id=member.node_id))
        try:
            await starting
        except QuorateError:
            if not self._is_awaited(member):
                raise
            self._cluster.kill(member)
        else:
            member.is_claimed = member.is_retired = False

    def _is_awaited(self, member: Member) -> bool:
        """Whether partitions wait for what is lost with its disk."""
        hosted = self._cluster.truth.latest.hosted_partitions(member.node_id)
        return any(state.isr == (member.node_id,) for _, state in hosted)

    async def _bring_back(self, member: Member) -> None:
        """Forgotten as a broker too, it starts again as it would for the first time, but with what it has."""
        await self._unregister(member)
        await self._world.sleep(self._random.random() * 2)
        member.is_retired = False
        await self._cluster.bring_up(member)
        member.is_claimed = False

    async def _unregister(self, member: Member) -> None:
        unregister = UnregisterBroker(node_id=member.node_id, even_with_replicas=True)
        await self._ask(Submit(commands=encode_commands([unregister]), validate_only=False))

    async def _ask(self, request: LeaderRequest) -> None:
        """Through any node, until it is done or cannot be."""
        while True:
            node = self._random.choice(self._cluster.members)
            if (running := node.running_node) is not None:
                try:
                    answer = await node.host.run(running.quorum.ask(request, _ASK_TIMEOUT_MS))
                except (NoQuorum, HostDied):
                    pass
                else:
                    assert isinstance(answer, Done | ChangeRefused | Submitted), answer
                    self._world.trace.note(f"{request}: {answer}")
                    return
            await self._world.sleep(_RETRY_S)
