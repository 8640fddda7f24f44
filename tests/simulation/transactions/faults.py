"""The faults of replicas, and of the way between clients and nodes: that is where ends of transactions get lost."""

from collections.abc import Sequence

from quorate.kernel.ids import NodeId, TopicName
from quorate.kernel.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.simulation.replication.clients import TOPIC
from tests.simulation.replication.faults import Faults
from tests.simulation.world.link import LinkSettings

_BAD_LINK = LinkSettings(delay_ms=5, jitter_ms=40, loss_probability=0.4)


class TransactionFaults(Faults):
    topics = (TopicName(TOPIC), TRANSACTION_STATE, CONSUMER_OFFSETS)

    def drawn(self) -> Sequence[str]:
        return (*super().drawn(), *("bad_client_links", "block_client", "lose_coordinator") * 2)

    async def _bad_client_links(self) -> None:
        """What is lost comes later, after what was sent on another connection."""
        links = [
            link
            for node_id in self._cluster.node_ids
            for link in (
                self._world.network.link("client", self._name(node_id)),
                self._world.network.link(self._name(node_id), "client"),
            )
        ]
        for link in links:
            link.settings = _BAD_LINK
        await self._wait()
        for link in links:
            link.settings = LinkSettings()

    async def _lose_coordinator(self) -> None:
        """It decides, cannot have all markers written, and is gone: the next one has to."""
        coordinator = self._random.choice(sorted(self._leaders_of(TRANSACTION_STATE)) or self._cluster.node_ids)
        others = sorted(self._leaders_of(TopicName(TOPIC)) - {coordinator})
        if coordinator in self._cluster.claimed or not others:
            return
        self._claimed(coordinator)
        pair = self._name(coordinator), self._name(self._random.choice(others))
        self._world.network.block(*pair)
        await self._world.sleep(self._cluster.shape.lag_ms / 1000 + self._random.random())
        self._cluster.kill(coordinator)
        self._world.network.unblock(*pair)
        await self._restart(coordinator, self._cluster.kill)

    def _leaders_of(self, topic: TopicName) -> set[NodeId]:
        return {state.leader for (name, _), state in self._partitions().items() if name == topic and state.has_leader}

    async def _block_client(self) -> None:
        """One way only: the node hears and is not heard, or the other way round."""
        pair = ["client", self._name(self._random.choice(self._cluster.node_ids))]
        self._random.shuffle(pair)
        self._world.network.block(*pair)
        await self._wait()
        self._world.network.unblock(*pair)
