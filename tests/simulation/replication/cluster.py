"""Production nodes in the world, and what is needed to look into them."""

import asyncio

import msgspec

from quorate.broker.config import NodeConfig, parse_node_config
from quorate.broker.node import RunningNode
from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import NO_LEADER_EPOCH, LeaderEpoch, NodeId, PartitionIndex, TopicName
from quorate.kernel.settings import Durability
from quorate.metadata.core.image import MetadataImage
from quorate.replication.partition import Partition
from tests.simulation.world.host import SECRET_FILE, HostDied
from tests.simulation.world.served_node import PORT, start
from tests.simulation.world.world import World

_VOTERS = 3


class ClusterShape(msgspec.Struct, frozen=True, kw_only=True):
    durability: Durability = Durability.FSYNC
    #: The first three vote. With more than three, who leads the quorum need not have a replica.
    nodes: int = 3
    #: Below the session of a broker, so that a replica may be out of sync and alive, and its leader cut off.
    lag_ms: int = 2_000
    #: More settings of every node.
    configs: dict[str, int] = {}


class ReplicatedCluster:
    def __init__(self, world: World, shape: ClusterShape) -> None:
        self.world = world
        self.shape = shape
        self.node_ids = tuple(NodeId(number) for number in range(1, shape.nodes + 1))
        self.hosts = {node_id: world.add_host(f"n{node_id}") for node_id in self.node_ids}
        self.client_host = world.add_host("client", "10.0.9.9")
        #: Of nodes that take requests, as far as anybody can know.
        self.nodes: dict[NodeId, RunningNode] = {}
        #: Something is being done to them; nothing else may be.
        self.claimed: set[NodeId] = set()
        #: They serve no client any more, but what they commit until they are gone is committed.
        self._stopping: dict[NodeId, RunningNode] = {}
        self._newest_image = MetadataImage()

    async def start(self) -> None:
        await asyncio.gather(*(self.bring_up(node_id) for node_id in self.node_ids))

    async def bring_up(self, node_id: NodeId) -> None:
        """Boot and start, as often as it takes: the power may fail in the middle of it."""
        host = self.hosts[node_id]
        while True:
            if not host.is_alive:
                host.boot()
            try:
                node = self.nodes[node_id] = await host.run(start(host, self._config(node_id)))
                host.spawn(self._end_when_failed(node_id, node))
            except HostDied:
                continue
            except OSError:  # Its disk is full.
                host.kill()
                await self.world.sleep(0.5)
                continue
            return

    async def _end_when_failed(self, node_id: NodeId, node: RunningNode) -> None:
        """As the process of a node does."""
        await node.end.is_due.wait()
        self.world.scenario.call_soon(self._end, node_id, node)

    def _end(self, node_id: NodeId, node: RunningNode) -> None:
        if self.nodes.get(node_id) is node:
            self.kill(node_id)

    def kill(self, node_id: NodeId) -> None:
        self.nodes.pop(node_id, None)
        self.hosts[node_id].kill()

    def power_off(self, node_id: NodeId) -> None:
        self.nodes.pop(node_id, None)
        self.hosts[node_id].power_off()

    async def stop(self, node_id: NodeId) -> None:
        """In good order, as on SIGTERM."""
        node = self.nodes.pop(node_id, None)
        if node is not None:
            self._stopping[node_id] = node
            try:
                await self.hosts[node_id].run(_stop(node))
            except HostDied:
                return
            finally:
                del self._stopping[node_id]
        self.kill(node_id)

    def newest_image(self) -> MetadataImage:
        """What is committed, as far as any node knows."""
        for node_id, node in [*self.nodes.items(), *self._stopping.items()]:
            if self.hosts[node_id].is_alive and node.metadata.image.version > self._newest_image.version:
                self._newest_image = node.metadata.image
        return self._newest_image

    def replica(self, node_id: NodeId, topic: TopicName, partition: PartitionIndex) -> Partition | None:
        """The replica on a node, if the node runs and the replica works."""
        node = self.nodes.get(node_id)
        if node is None or not self.hosts[node_id].is_alive:
            return None
        try:
            return node.partitions.replica(topic, partition)
        except KafkaError:
            return None

    def leaders(self) -> set[NodeId]:
        """Of any partition of a client's topic."""
        topics = self.newest_image().topics.values()
        return {state.leader for topic in topics for state in topic.partitions.values() if state.has_leader}

    def quorum_leader(self) -> NodeId | None:
        for node_id, node in self.nodes.items():
            if self.hosts[node_id].is_alive and node.quorum.driver.state.can_decide:
                return node_id
        return None

    def leader_epoch(self, node_id: int, topic: TopicName, partition: int) -> LeaderEpoch:
        """As this node knows it now."""
        state = self.newest_image().partition(topic, PartitionIndex(partition))
        node = self.nodes.get(NodeId(node_id))
        if node is not None and self.hosts[NodeId(node_id)].is_alive:
            state = node.metadata.image.partition(topic, PartitionIndex(partition))
        return NO_LEADER_EPOCH if state is None else state.leader_epoch

    def address_of(self, node_id: int) -> str:
        return self.hosts[NodeId(node_id)].address

    def _config(self, node_id: NodeId) -> NodeConfig:
        voters = "".join(f'{voter} = "{self.hosts[voter].address}:9093"\n' for voter in self.node_ids[:_VOTERS])
        configs = (
            '"min.insync.replicas" = 2\n"default.replication.factor" = 3\n"group.initial.rebalance.delay.ms" = 0\n'
            f'"replica.lag.time.max.ms" = {self.shape.lag_ms}\n'
        ) + "".join(f'"{name}" = {value}\n' for name, value in self.shape.configs.items())
        address = self.hosts[node_id].address
        return parse_node_config(
            f'node_id = {node_id}\ndata_dir = "/data"\ncluster_id = "simulated"\n'
            f'cluster_secret_file = "{SECRET_FILE}"\nrack = "rack-{node_id}"\n'
            f'listen = "{address}:{PORT}"\npeer_listen = "{address}:9093"\ndurability = "{self.shape.durability}"\n'
            f"[voters]\n{voters}[configs]\n{configs}"
        )


async def _stop(node: RunningNode) -> None:
    await node.leave()
    node.release_waiting_requests()
    await node.stop()
