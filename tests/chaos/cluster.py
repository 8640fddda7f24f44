"""Three nodes as real processes, for tests that kill, stop and freeze them. Start and restart from the main thread."""

import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.peers.child_process import free_port
from tests.peers.quorate_node import QuorateNode, TomlValue

NODE_IDS = (7, 100, 4001)
_CONFIGS: dict[str, TomlValue] = {
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "replica.lag.time.max.ms": 3_000,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
}


class ProcessCluster:
    """Every node is in a rack of its own."""

    def __init__(self, folder: Path, durability: str) -> None:
        peers = {str(node_id): f"127.0.0.1:{free_port()}" for node_id in NODE_IDS}
        self._nodes = {
            node_id: QuorateNode(
                folder / f"node-{node_id}",
                node_id=node_id,
                settings={
                    "cluster_id": "chaos",
                    "rack": rack_of(node_id),
                    "durability": durability,
                    "peer_listen": peers[str(node_id)],
                    "voters": peers,
                },
                configs=_CONFIGS,
            )
            for node_id in NODE_IDS
        }

    def __enter__(self) -> Self:
        self.start(*NODE_IDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node_id, node in self._nodes.items():
            node.kill()  # A frozen one too.
            if error is not None:
                print(f"node {node_id}:\n{node.process.output()[-2000:]}", file=sys.stderr)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self._nodes.values())

    def bootstrap_of(self, node_id: int) -> str:
        return self._nodes[node_id].bootstrap

    def start(self, *node_ids: int) -> None:
        """Start nodes that are down, together, and wait until all of them are ready."""
        for node_id in node_ids:
            self._nodes[node_id].launch()
        for node_id in node_ids:
            self._nodes[node_id].wait_until_ready()

    def kill(self, node_id: int) -> None:
        self._nodes[node_id].kill()

    def stop(self, node_id: int) -> int:
        """In good order; returns the exit status."""
        return self._nodes[node_id].stop()

    def freeze(self, node_id: int) -> None:
        self._nodes[node_id].process.send_signal(signal.SIGSTOP)

    def thaw(self, node_id: int) -> None:
        self._nodes[node_id].process.send_signal(signal.SIGCONT)


def rack_of(node_id: int) -> str:
    return f"rack-{node_id}"
