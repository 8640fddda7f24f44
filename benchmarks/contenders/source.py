"""The cluster that all contenders read: three nodes of Apache Kafka, its topics, and the log files on its disk.

Topics have one replica: reading goes to the leaders only, and the page cache holds every log once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contenders.topics import Topics
from benchmarks.systems import KAFKA_JVM_OPTIONS
from tests.peers.apache_kafka import ApacheKafka

NODE_IDS = (7, 100, 4001)
_HEAP_MB = 1024


class Source:
    def __init__(self, cluster: ApacheKafka) -> None:
        self._cluster = cluster
        self.topics = Topics(cluster.bootstrap)

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @property
    def pids(self) -> list[int]:
        return [node.pid for node in self._cluster.nodes.values()]

    def log_files(self, topic: str) -> list[Path]:
        """Every segment of the topic's logs, on whichever node it is."""
        folders = [node.data_dir for node in self._cluster.nodes.values()]
        return sorted(path for folder in folders for path in folder.glob(f"{topic}-*/*.log"))


@contextmanager
def start_source() -> Iterator[Source]:
    options = (f"-Xms{_HEAP_MB}m", *KAFKA_JVM_OPTIONS)
    with ApacheKafka.start(NODE_IDS, heap_mb=_HEAP_MB, jvm_options=options) as cluster:
        yield Source(cluster)
