"""A while of chaos: load on real processes, faults at random, and in the end the history must be whole."""

import time
from collections import Counter
from pathlib import Path
from random import Random

import msgspec
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.chaos.cluster import NODE_IDS, ProcessCluster, rack_of
from tests.chaos.load import PARTITION_COUNT, TOPIC, GroupMember, SharedHistory, Tail, Worker, Writer, read_everything
from tests.eventually import eventually
from tests.simulation.replication.history import HistoryBroken

_RECOVERED_WITHIN_S = 60


class Report(msgspec.Struct, frozen=True, kw_only=True):
    acknowledged: int
    read: int
    faults: dict[str, int]
    #: Between two acknowledgements, over all writers; long where all nodes were killed.
    longest_silence_s: float


def run_chaos(folder: Path, seed: int, seconds: float, *, durability: str = "fsync") -> Report:
    """Raises ``HistoryBroken`` where anything was lost, doubled, reordered, skipped or hung."""
    with ProcessCluster(folder, durability) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic(TOPIC, num_partitions=PARTITION_COUNT, replication_factor=3)
        admin.create_topics([topic])[TOPIC].result(20)
        shared = SharedHistory()
        writers: list[Worker] = [
            Writer(shared, cluster.bootstrap_of(NODE_IDS[0]), "a", is_idempotent=True),
            Writer(shared, cluster.bootstrap, "b", is_idempotent=False),
        ]
        readers: list[Worker] = [
            Tail(shared, cluster.bootstrap, "tail"),
            Tail(shared, cluster.bootstrap, "near-tail", **{"client.rack": rack_of(NODE_IDS[1])}),
            GroupMember(shared, cluster.bootstrap),
        ]
        for worker in [*writers, *readers]:
            worker.start()
        faults = _break_things(cluster, admin, shared, Random(seed), seconds)
        eventually(lambda: _all_in_sync(admin), "all replicas to be in sync", _RECOVERED_WITHIN_S)
        for worker in [*writers, *readers]:
            worker.end()
        _check(shared, cluster)
        history = shared.history
        return Report(
            acknowledged=history.acknowledged_count,
            read=history.read_count,
            faults=faults,
            longest_silence_s=shared.longest_silence_s,
        )


def _break_things(
    cluster: ProcessCluster, admin: AdminClient, shared: SharedHistory, random: Random, seconds: float
) -> dict[str, int]:
    faults = Faults(cluster, admin, random)
    deadline = time.monotonic() + seconds
    time.sleep(1)
    while time.monotonic() < deadline and shared.broken is None:
        faults.one()
    return dict(faults.counts)


class Faults:
    def __init__(self, cluster: ProcessCluster, admin: AdminClient, random: Random) -> None:
        self._cluster = cluster
        self._admin = admin
        self._random = random
        self.counts: Counter[str] = Counter()

    def one(self) -> None:
        fault = self._random.choice(
            [self._kill_leader, self._kill_leader, self._kill, self._freeze, self._stop, self._kill_all]
        )
        self.counts[fault.__name__.strip("_")] += 1
        fault()
        time.sleep(self._random.uniform(0.2, 2.5))

    def _kill(self) -> None:
        self._kill_and_restart(self._random.choice(NODE_IDS))

    def _kill_leader(self) -> None:
        self._kill_and_restart(self._leader())

    def _kill_and_restart(self, node_id: int) -> None:
        self._cluster.kill(node_id)
        time.sleep(self._random.uniform(0.1, 3.0))
        self._cluster.start(node_id)

    def _kill_all(self) -> None:
        for node_id in NODE_IDS:
            self._cluster.kill(node_id)
        self._cluster.start(*NODE_IDS)

    def _stop(self) -> None:
        node_id = self._leader()
        if self._cluster.stop(node_id) != 0:
            raise HistoryBroken(f"node {node_id} did not stop in good order")
        self._cluster.start(node_id)

    def _freeze(self) -> None:
        node_id = self._leader()
        self._cluster.freeze(node_id)
        time.sleep(self._random.uniform(0.2, 6.0))
        self._cluster.thaw(node_id)

    def _leader(self) -> int:
        partitions = self._admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions.values()
        leaders = [partition.leader for partition in partitions if partition.leader in NODE_IDS]
        return self._random.choice(leaders or list(NODE_IDS))


def _all_in_sync(admin: AdminClient) -> bool:
    partitions = admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions.values()
    return all(len(partition.isrs) == len(NODE_IDS) and partition.leader in NODE_IDS for partition in partitions)


def _check(shared: SharedHistory, cluster: ProcessCluster) -> None:
    if shared.broken is not None:
        raise shared.broken
    for partition, log in read_everything(cluster.bootstrap).items():
        shared.history.check_log(partition, log, "the topic")
        _check_order(partition, list(log.values()))


def _check_order(partition: int, values: list[bytes]) -> None:
    """An idempotent producer's records stand in the order in which it sent them, none left out."""
    sent: dict[bytes, int] = {}
    for value in values:
        name, _, number = value.rpartition(b"-")
        if name.startswith(b"once"):
            expected = sent.get(name, partition - PARTITION_COUNT) + PARTITION_COUNT
            if int(number) != expected:
                raise HistoryBroken(f"partition {partition} has {value!r}, where {expected} comes next")
            sent[name] = int(number)
