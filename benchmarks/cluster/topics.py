"""Many topics: how long they take to make, to tell of and to come back with, and what they cost a cluster that is idle.

Also how soon a new cluster makes its first topic.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from benchmarks import wire
from benchmarks.cases import Unit
from benchmarks.cluster import admin_wire, cases
from benchmarks.cluster.asking import REPLICATION_FACTOR, Asking
from benchmarks.cluster.cases import ClusterSettings
from benchmarks.cluster.meter import memory_of_a_node_bytes, nodes_cpu_seconds
from benchmarks.cluster.systems import NODE_IDS, Address, ClusterSystem, QuorateCluster
from benchmarks.connection import Connection, RequestFailed
from benchmarks.process_usage import machine_busy_seconds
from benchmarks.samples import MIB, Sample
from benchmarks.systems import Durability
from quorate.testing import ClusterInProcess
from tests.peers.child_process import ChildProcess, free_port

PARTITIONS = 3
_TOPICS_A_REQUEST = 50
_TIMEOUT_S = 180.0
_SETTLING_S = 3.0
_POLL_INTERVAL_S = 0.005
# Both at their defaults, which differ here; nothing in this part waits for the disk much.
_DURABILITY = Durability.FSYNC


class TopicsRunner:
    def __init__(self, settings: ClusterSettings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._topics = [f"topic-{number}" for number in range(settings.topics)]

    def measure_start(self, system: ClusterSystem) -> Iterator[Sample]:
        """From the start of all processes to the first topic, on empty data directories."""
        for _ in range(self._settings.start_repeats):
            if isinstance(system, QuorateCluster):
                seconds = _start_with_quorate_up()
            else:
                started = time.perf_counter()
                system.launch()
                _make_first_topic(system)
                seconds = time.perf_counter() - started
                system.stop()
            yield self._sample(system, cases.START, Unit.SECONDS, seconds)
            if isinstance(system, QuorateCluster):
                yield self._sample(system, cases.START_IN_PROCESS, Unit.SECONDS, _start_in_process())

    def measure(self, system: ClusterSystem) -> Iterator[Sample]:
        """Needs the machine for itself: the other system must not run."""
        system.launch()
        Asking(system).wait_for_all_nodes(_TIMEOUT_S)
        yield self._idle_cpu(system, cases.IDLE_CPU_WITHOUT_TOPICS)
        yield self._sample(system, cases.TOPICS_CREATE, Unit.SECONDS, self._create(system))
        yield self._sample(system, cases.TOPICS_METADATA, Unit.MICROSECONDS, self._metadata_us(system))
        yield self._idle_cpu(system, cases.IDLE_CPU)
        memory_bytes = memory_of_a_node_bytes(system)
        yield self._sample(system, cases.TOPICS_MEMORY, Unit.MEBIBYTES, memory_bytes / MIB)
        serving_s, whole_s = self._restart_a_node(system)
        yield self._sample(system, cases.TOPICS_RESTART_SERVING, Unit.SECONDS, serving_s)
        yield self._sample(system, cases.TOPICS_RESTART_WHOLE, Unit.SECONDS, whole_s)

    def _create(self, system: ClusterSystem) -> float:
        """Until every node tells of every partition with a leader and all its replicas."""
        started = time.perf_counter()
        with Connection(next(iter(system.nodes.values())).address) as connection:
            for first in range(0, len(self._topics), _TOPICS_A_REQUEST):
                some = self._topics[first : first + _TOPICS_A_REQUEST]
                answer = connection.ask(wire.create_topics_request(some, PARTITIONS, (), REPLICATION_FACTOR))
                if code := wire.topic_error_code(answer, some[0]):
                    raise RequestFailed(f"{system.name} answered CreateTopics with error code {code}")
        for node_id in system.nodes:
            self._wait_until_whole(system, node_id)
        return time.perf_counter() - started

    def _metadata_us(self, system: ClusterSystem) -> float:
        frame = admin_wire.metadata_request(None)
        times_us = []
        with Connection(next(iter(system.nodes.values())).address) as connection:
            for _ in range(self._settings.metadata_requests):
                started = time.perf_counter()
                connection.ask(frame)
                times_us.append((time.perf_counter() - started) * 1e6)
        return median(times_us)

    def _restart_a_node(self, system: ClusterSystem) -> tuple[float, float]:
        """Stopped in order. Until it tells of all topics, and until it is in sync again everywhere."""
        node = system.nodes[NODE_IDS[1]]
        node.process.stop()
        started = time.perf_counter()
        node.launch()
        asking = Asking(system)
        asking.eventually(lambda: self._tells_of_all(asking, node.node_id) or None, "a restarted node", _TIMEOUT_S)
        serving_s = time.perf_counter() - started
        self._wait_until_whole(system, node.node_id)
        return serving_s, time.perf_counter() - started

    def _tells_of_all(self, asking: Asking, node_id: int) -> bool:
        topics = asking.view(None, node_id).topics
        return all(len(topics.get(topic, ())) == PARTITIONS for topic in self._topics)

    def _wait_until_whole(self, system: ClusterSystem, node_id: int) -> None:
        asking = Asking(system)

        def look() -> bool | None:
            topics = asking.view(None, node_id).topics
            found = [partition for topic in self._topics for partition in topics.get(topic, ())]
            return (len(found) == PARTITIONS * len(self._topics) and all(each.is_whole for each in found)) or None

        asking.eventually(look, f"node {node_id} to tell of all replicas in sync", _TIMEOUT_S)

    def _idle_cpu(self, system: ClusterSystem, measure: str) -> Sample:
        """The share of a core that one node takes, the mean over the nodes."""
        time.sleep(_SETTLING_S)
        before_s, busy_before_s, started = nodes_cpu_seconds(system), machine_busy_seconds(), time.perf_counter()
        time.sleep(self._settings.idle_seconds)
        spent_s, seconds = nodes_cpu_seconds(system) - before_s, time.perf_counter() - started
        return self._sample(
            system,
            measure,
            Unit.CORE_SHARE,
            spent_s / seconds / len(system.nodes),
            seconds=seconds,
            other_cpu_seconds=max(0.0, machine_busy_seconds() - busy_before_s - spent_s),
        )

    def _sample(
        self,
        system: ClusterSystem,
        measure: str,
        unit: Unit,
        value: float,
        *,
        seconds: float = 0.0,
        other_cpu_seconds: float | None = None,
    ) -> Sample:
        self._say(f"{measure} {system.name}: {value:,.4g} {unit}")
        return Sample(
            measure=measure,
            durability=_DURABILITY,
            system=system.name,
            unit=unit,
            value=value,
            seconds=seconds,
            other_cpu_seconds=other_cpu_seconds,
        )


def _make_first_topic(system: ClusterSystem) -> None:
    asking = Asking(system)

    def create() -> bool:
        asking.create_topic("first", 1)
        return True

    asking.eventually(create, "the first topic", _TIMEOUT_S)


def _start_with_quorate_up() -> float:
    folder = Path(tempfile.mkdtemp(prefix="quorate-benchmark-up-"))
    port = free_port()
    command = [str(Path(sys.executable).parent / "quorate"), "up", "--port", str(port), "--data", str(folder / "data")]
    started = time.perf_counter()
    process = ChildProcess(command, folder / "up.log")
    try:
        _make_topic_at(("127.0.0.1", port), started + _TIMEOUT_S)
        return time.perf_counter() - started
    finally:
        process.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _start_in_process() -> float:
    """Three nodes in this process, as tests use them. What is imported once is not part of it."""
    started = time.perf_counter()
    with ClusterInProcess(len(NODE_IDS)) as cluster:
        host, _, port = cluster.bootstrap_servers.partition(",")[0].rpartition(":")
        _make_topic_at((host, int(port)), started + _TIMEOUT_S)
        return time.perf_counter() - started


def _make_topic_at(address: Address, deadline: float) -> None:
    """As soon as there is a quorum and three brokers for its replicas."""
    while True:
        refusal: object
        try:
            with Connection(address) as connection:
                answer = connection.ask(wire.create_topics_request(["first"], 1, (), REPLICATION_FACTOR))
            refusal = wire.topic_error_code(answer, "first")
        except OSError as error:
            refusal = error
        if not refusal:
            return
        if time.perf_counter() > deadline:
            raise RequestFailed(f"no topic could be made: {refusal}")
        time.sleep(_POLL_INTERVAL_S)
