"""The clusters that all contenders write to, and the topics there: gone, with their files, before the next turn."""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.cluster.asking import Asking
from benchmarks.cluster.systems import QuorateCluster, bootstrap_servers
from benchmarks.contenders.topics import Topics
from benchmarks.restore.cases import TargetKind
from benchmarks.systems import Durability
from quorate.client.config import parse_client_config
from quorate.client.kafka_client import KafkaClient
from tests.eventually import eventually
from tests.peers.child_process import ChildProcess, free_port

_START_TIMEOUT_S = 60.0
_REMOVAL_TIMEOUT_S = 30.0
_TOPICS_AT_ONCE = 200


class Target:
    def __init__(self, bootstrap: str, pids: Sequence[int], data_dirs: Sequence[Path]) -> None:
        self.bootstrap = bootstrap
        self.pids = pids
        self.topics = Topics(bootstrap)
        self._data_dirs = data_dirs

    def leaders(self, topics: Sequence[str], partitions: int) -> dict[tuple[str, int], tuple[str, int]]:
        """The address of each partition's leader, once all have one."""

        def look() -> dict[tuple[str, int], tuple[str, int]] | None:
            metadata = client.cluster.metadata(topics)
            found = {
                (str(name), int(index)): (broker.address.host, broker.address.port)
                for name, each in metadata.topics.items()
                for index, partition in each.partitions.items()
                if partition.leader is not None and (broker := metadata.brokers.get(partition.leader)) is not None
            }
            return found if len(found) == partitions * len(topics) else None

        with self._client() as client:
            return eventually(look, f"a leader for each partition of {topics[0]}", _START_TIMEOUT_S)

    def delete_topics(self, topics: Sequence[str]) -> None:
        with self._client() as client:
            for start in range(0, len(topics), _TOPICS_AT_ONCE):
                client.topics.delete(topics[start : start + _TOPICS_AT_ONCE])
        wanted = set(topics)
        eventually(lambda: not self._has_files(wanted) or None, "the end of the topics' files", _REMOVAL_TIMEOUT_S)

    def _has_files(self, topics: set[str]) -> bool:
        entries = (path.name for folder in self._data_dirs for path in folder.iterdir())
        return any(name.rpartition("-")[0] in topics for name in entries)

    def _client(self) -> KafkaClient:
        return KafkaClient(parse_client_config({"bootstrap_servers": self.bootstrap.split(",")}))


@contextmanager
def start_target(kind: TargetKind) -> Iterator[Target]:
    with _start_cluster() if kind is TargetKind.CLUSTER else _start_sink() as target:
        yield target


@contextmanager
def _start_cluster() -> Iterator[Target]:
    """Acknowledged when in the page cache: otherwise the disk is what is measured, in all contenders alike."""
    cluster = QuorateCluster(Durability.OS)
    try:
        cluster.launch()
        Asking(cluster).wait_for_all_nodes(_START_TIMEOUT_S)
        nodes = cluster.nodes.values()
        yield Target(
            bootstrap_servers(cluster), [node.process.pid for node in nodes], [node.data_dir for node in nodes]
        )
    finally:
        cluster.discard()


@contextmanager
def _start_sink() -> Iterator[Target]:
    with tempfile.TemporaryDirectory(prefix="quorate-benchmark-sink-") as name:
        folder = Path(name)
        bootstrap = f"127.0.0.1:{free_port()}"
        config = folder / "node.toml"
        config.write_text(f'node_id = 7\ndata_dir = "{folder}/data"\nlisten = "{bootstrap}"\ndurability = "os"\n')
        process = ChildProcess([sys.executable, "-m", "benchmarks.restore.produce_sink", str(config)], folder / "log")
        try:
            process.wait_for_output(lambda text: "ready" if "ready: " in text else None, "ready", _START_TIMEOUT_S)
            yield Target(bootstrap, [process.pid], [folder / "data"])
        finally:
            process.kill()
