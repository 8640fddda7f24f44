"""Nodes that join, become voters and leave while the cluster is at work."""

from quorate.broker.quorum.leader_calls import NoQuorum
from quorate.broker.quorum.leader_requests import Done, LeaderRequest, Promote, Refused, Remove
from tests.simulation.cluster.cluster import Member, SimulatedCluster
from tests.simulation.world.host import HostDied

_RETRY_S = 0.3
_ASK_TIMEOUT_MS = 3_000


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
            await self._remove(self._random.choice(self._cluster.members))

    async def _remove(self, member: Member) -> None:
        while member.is_claimed:
            await self._world.sleep(_RETRY_S)
        member.is_claimed = member.is_retired = True
        await self._ask(Remove(node_id=member.node_id))
        self._cluster.kill(member)

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
                    assert isinstance(answer, Done | Refused), answer
                    self._world.trace.note(f"{request}: {answer}")
                    return
            await self._world.sleep(_RETRY_S)
