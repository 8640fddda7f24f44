"""The cluster that all contenders read: three nodes of Apache Kafka, its topics, and the log files on its disk.

Topics have one replica: reading goes to the leaders only, and the page cache holds every log once.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contenders.shapes import Shape
from benchmarks.contenders.topics import Topics, check_batches
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

    def make(self, shape: Shape, say: Callable[[str], None]) -> None:
        """The shape's topics, filled and looked at."""
        self.topics.make(shape)
        mean = check_batches(shape, self.log_files(shape.topics))
        say(f"{shape.records:,} records for {shape.name}, {mean:.1f} a batch")

    def log_files(self, topics: Iterable[str]) -> list[Path]:
        """Every segment of the topics' logs, on whichever node it is."""
        folders = [node.data_dir for node in self._cluster.nodes.values()]
        wanted = set(topics)
        found = (path for folder in folders for path in folder.glob("*/*.log"))
        return sorted(path for path in found if path.parent.name.rpartition("-")[0] in wanted)


@contextmanager
def start_source() -> Iterator[Source]:
    options = (f"-Xms{_HEAP_MB}m", *KAFKA_JVM_OPTIONS)
    with ApacheKafka.start(NODE_IDS, heap_mb=_HEAP_MB, jvm_options=options) as cluster:
        yield Source(cluster)
