"""Leader hints in Produce and Fetch answers (KIP-951), as events for the router."""

from collections.abc import Sequence
from typing import Protocol

from quorate.client.cluster_metadata import Broker
from quorate.client.routing import LeaderHinted, PartitionRefused
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import LeaderEpoch, NodeId, TopicPartition


class CurrentLeader(Protocol):
    @property
    def leader_id(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...


class Endpoint(Protocol):
    @property
    def node_id(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def rack(self) -> str | None: ...


def refusal_event(
    now_ms: int, partition: TopicPartition, code: ErrorCode, leader: CurrentLeader, endpoints: Sequence[Endpoint]
) -> LeaderHinted | PartitionRefused:
    """What a refused partition tells the router: who leads instead, or only that it was refused."""
    if leader.leader_id < 0:
        return PartitionRefused(now_ms, partition, code)
    brokers = tuple(
        Broker(node_id=NodeId(node.node_id), address=Address(node.host, node.port), rack=node.rack)
        for node in endpoints
    )
    return LeaderHinted(now_ms, partition, NodeId(leader.leader_id), LeaderEpoch(leader.leader_epoch), brokers)
