"""A Quorate cluster of child processes: real files, real ports, ids that are neither contiguous nor zero-based."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from quorate.broker.peer_credentials import SECRET_FILE_NAME, make_secret_file, read_secret_file
from tests.chaos.links import Links
from tests.peers.child_process import free_port
from tests.peers.node_certificates import NodeAuthority, NodeFiles
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
        self,
        folder: Path,
        node_ids: Sequence[int] = IDS,
        configs: Mapping[str, TomlValue] | None = None,
        *,
        authority: NodeAuthority | None = None,
        links: Links | None = None,
    ) -> None:
        """With an authority nodes have certificates in place of the secret. The links are between the nodes."""
        secret_file = folder / SECRET_FILE_NAME
        make_secret_file(secret_file)
        #: What nodes prove to each other to know, where they have no certificates.
        self.secrets = read_secret_file(str(secret_file))
        #: Where they have.
        self.files = None if authority is None else NodeFiles(folder, authority, node_ids)
        ports = {node_id: free_port() for node_id in node_ids}
        dialled = {str(each): port if links is None else links.open(port).port for each, port in ports.items()}
        peers = {node_id: f"127.0.0.1:{port}" for node_id, port in dialled.items()}
        self.nodes = {
            node_id: QuorateNode(
                folder / f"node-{node_id}",
                node_id=node_id,
                settings={
                    "cluster_id": "tests",
                    **({"cluster_secret_file": str(secret_file)} if self.files is None else self.files.keys(node_id)),
                    "peer_listen": f"127.0.0.1:{port}",
                    "peer_advertised": peers[str(node_id)],
                    "voters": peers,
                },
                configs=CONFIGS | dict(configs or {}),
                more_listeners=self._more_listeners(node_id),
            )
            for node_id, port in ports.items()
        }
        self.restart(node_ids)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def _more_listeners(self, node_id: int) -> Mapping[str, int]:
        """The ports of a node's listeners beside the plain one, by their names."""
        return {}

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
