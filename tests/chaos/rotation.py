"""Secrets, certificates and their authority are replaced under load: nothing is lost, and no leader is missed."""

import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

import msgspec
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.chaos.cluster import ProcessCluster
from tests.chaos.load import PARTITION_COUNT, TOPIC, SharedHistory, Tail, Worker, Writer
from tests.chaos.verdict import all_in_sync, check
from tests.eventually import eventually
from tests.simulation.replication.history import HistoryBroken

_STARTED_WITHIN_S = 60
_CHANGED = "peer credentials changed"
#: What a rotation is not to lead to.
_DISTURBANCES = ("broker fenced", "quorum leader changed", "peer refused", "peer died", "Traceback", " not changed ")


class RotationReport(msgspec.Struct, frozen=True, kw_only=True):
    acknowledged: int
    steps: int
    #: Connections that ended as they rested on what counts no more.
    ended: int
    #: Between two acknowledgements, over all writers: before the rotation, and in it.
    longest_silence_before_s: float
    longest_silence_s: float


def rotate_under_load(folder: Path, *, has_certificates: bool, seed: int = 1, times: int = 1) -> RotationReport:
    """Raises ``HistoryBroken`` where anything was lost, or a node or a leader was missed for a moment."""
    with ProcessCluster(folder, has_certificates=has_certificates) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic(TOPIC, num_partitions=PARTITION_COUNT, replication_factor=3)
        admin.create_topics([topic])[TOPIC].result(20)
        shared = SharedHistory()
        workers: list[Worker] = [
            Writer(shared, cluster.bootstrap, "a", is_idempotent=True),
            Writer(shared, cluster.bootstrap, "b", is_idempotent=False),
            Tail(shared, cluster.bootstrap, "tail"),
        ]
        for worker in workers:
            worker.start()
        eventually(lambda: shared.history.acknowledged_count > 1_000, "writes", _STARTED_WITHIN_S)
        before = _count(cluster, *_DISTURBANCES)
        silence_before_s, shared.longest_silence_s = shared.longest_silence_s, 0.0
        steps = 0
        for _ in range(times):
            steps += _rotate(cluster, shared, Random(seed))
        silence_s = shared.longest_silence_s
        eventually(lambda: shared.broken or all_in_sync(admin), "all replicas to be in sync")
        for worker in workers:
            worker.end()
        check(shared, cluster.bootstrap)
        disturbances = _count(cluster, *_DISTURBANCES) - before
        if disturbances:
            raise HistoryBroken(f"the rotation was noticed: {dict(disturbances)}")
        return RotationReport(
            acknowledged=shared.history.acknowledged_count,
            steps=steps,
            ended=_count(cluster, "peer connection lost").total(),
            longest_silence_before_s=round(silence_before_s, 2),
            longest_silence_s=round(silence_s, 2),
        )


def _rotate(cluster: ProcessCluster, shared: SharedHistory, random: Random) -> int:
    steps = 0
    known = {node_id: cluster.log_text(node_id).count(_CHANGED) for node_id in cluster.node_ids}
    for step in cluster.credentials.steps(random, lambda: time.sleep(random.uniform(0, 0.3))):
        steps += 1

        def is_known(steps: int = steps) -> bool:
            counts = {node_id: cluster.log_text(node_id).count(_CHANGED) for node_id in cluster.node_ids}
            return all(counts[node_id] == known[node_id] + steps for node_id in counts)

        eventually(is_known, f"all nodes to know of {step}")
        acknowledged = shared.history.acknowledged_count
        eventually(lambda at=acknowledged: shared.history.acknowledged_count > at + 100, "writes")  # type: ignore[misc]
    return steps


def _count(cluster: ProcessCluster, *words: str) -> Counter[str]:
    texts = [cluster.log_text(node_id) for node_id in cluster.node_ids]
    return Counter({word: sum(text.count(word) for text in texts) for word in words})


class RotationAmongFaults(threading.Thread):
    """Everything is replaced again and again while other things happen to nodes and links. Who was away may lag."""

    def __init__(self, cluster: ProcessCluster, random: Random) -> None:
        super().__init__(name="rotation", daemon=True)
        self._credentials = cluster.credentials
        self._random = random
        self._ends = threading.Event()
        self._failure: Exception | None = None
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        try:
            while not self._ends.is_set():
                self._rotate()
        except Exception as error:
            self._failure = error

    def end(self) -> None:
        self._ends.set()
        self.join(30)
        if self._failure is not None:
            raise self._failure

    def _rotate(self) -> None:
        for _ in self._credentials.steps(self._random, lambda: self._pause(0, 0.3)):
            self.counts["rotation_step"] += 1
            self._pause(2.5, 5.0)
            if self._ends.is_set():
                return

    def _pause(self, least_s: float, most_s: float) -> None:
        self._ends.wait(self._random.uniform(least_s, most_s))
