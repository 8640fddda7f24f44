"""A Quorate cluster of child processes: real files, real ports, ids that are neither contiguous nor zero-based."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.peers.child_process import free_port
from tests.peers.quorate_node import QuorateNode, TomlValue

IDS = (7, 100, 4001)
CONFIGS: dict[str, TomlValue] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    # What a test asks for, the cluster is not to do by itself meanwhile.
    "auto.leader.rebalance.enable": False,
    "auto.new.node.rebalance.enable": False,
}


class QuorateCluster:
    """All nodes vote. Kill and restart them through ``nodes``, or several at once."""

    def __init__(
        self, folder: Path, node_ids: Sequence[int] = IDS, configs: Mapping[str, TomlValue] | None = None
    ) -> None:
        peers = {str(node_id): f"127.0.0.1:{free_port()}" for node_id in node_ids}
        self.nodes = {
            node_id: QuorateNode(
                folder / f"node-{node_id}",
                node_id=node_id,
                settings={"cluster_id": "tests", "peer_listen": peers[str(node_id)], "voters": peers},
                configs=CONFIGS | dict(configs or {}),
            )
            for node_id in node_ids
        }
        self.restart(node_ids)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def kill(self, node_ids: Iterable[int]) -> None:
        for node_id in node_ids:
            self.nodes[node_id].kill()

    def restart(self, node_ids: Iterable[int]) -> None:
        """Start them together: one alone may wait for the others."""
        nodes = [self.nodes[node_id] for node_id in node_ids]
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait_until_ready()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes.values():
            node.kill()
