"""A while of chaos: load on real processes, faults at random, and in the end the history must be whole."""

import sys
import time
from pathlib import Path
from random import Random

import msgspec
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.chaos.cluster import NODE_IDS, ProcessCluster, Wires, rack_of
from tests.chaos.faults import LinkWeather, NetworkWeather, NodeFaults, Weather
from tests.chaos.java_writer import JavaWriter
from tests.chaos.load import PARTITION_COUNT, TOPIC, GroupMember, SharedHistory, Tail, Worker, Writer
from tests.chaos.rotation import RotationAmongFaults
from tests.chaos.verdict import all_in_sync, check
from tests.eventually import eventually
from tests.peers.jars import PeersUnavailableError

_STARTED_WITHIN_S = 120
_RECOVERED_WITHIN_S = 120


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What a while of chaos is made of."""

    seed: int
    seconds: float
    #: On a slow machine it takes longer than that to do so much.
    least_faults: int = 1
    durability: str = "fsync"
    node_ids: tuple[int, ...] = NODE_IDS
    #: But for the loopback they are bad now and then. A killed process is not known at once through proxies.
    wires: Wires = Wires.LOOPBACK
    #: Beside the secret; both are replaced all the time then.
    has_certificates: bool = False


class Report(msgspec.Struct, frozen=True, kw_only=True):
    acknowledged: int
    #: Of these, by the Java client; None where there is none.
    acknowledged_to_java: int | None
    read: int
    faults: dict[str, int]
    #: Between two acknowledgements, over all writers; long where all nodes were killed.
    longest_silence_s: float
    #: How often a consumer went back to where an epoch begins.
    went_back: int


def run_chaos(folder: Path, chaos: Round) -> Report:
    """Raises ``HistoryBroken`` where anything was lost, doubled, reordered, skipped or hung."""
    with ProcessCluster(
        folder,
        chaos.durability,
        node_ids=chaos.node_ids,
        wires=chaos.wires,
        has_small_disk=True,
        has_certificates=chaos.has_certificates,
    ) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic(TOPIC, num_partitions=PARTITION_COUNT, replication_factor=3)
        admin.create_topics([topic])[TOPIC].result(20)
        shared = SharedHistory()
        java = _java_writer(shared, cluster, folder)
        writers: list[Worker] = [
            Writer(shared, cluster.address_of(chaos.node_ids[0]), "a", is_idempotent=True),
            Writer(shared, cluster.bootstrap, "b", is_idempotent=False),
            *([] if java is None else [java]),
        ]
        tails = [
            Tail(shared, cluster.bootstrap, "tail"),
            Tail(shared, cluster.bootstrap, "near-tail", **{"client.rack": rack_of(chaos.node_ids[1])}),
        ]
        readers: list[Worker] = [*tails, GroupMember(shared, cluster.bootstrap)]
        for worker in [*writers, *readers]:
            worker.start()
        if java is not None:
            eventually(lambda: java.acknowledged > 0, "the Java client to write", _STARTED_WITHIN_S)
        faults = _break_things(cluster, admin, shared, chaos)
        eventually(lambda: shared.broken or all_in_sync(admin), "all replicas to be in sync", _RECOVERED_WITHIN_S)
        for worker in [*writers, *readers]:
            worker.end()
        check(shared, cluster.bootstrap)
        history = shared.history
        return Report(
            acknowledged=history.acknowledged_count,
            acknowledged_to_java=None if java is None else java.acknowledged,
            read=history.read_count,
            faults=faults,
            longest_silence_s=round(shared.longest_silence_s, 1),
            went_back=sum(tail.went_back for tail in tails),
        )


def _java_writer(shared: SharedHistory, cluster: ProcessCluster, folder: Path) -> JavaWriter | None:
    try:
        return JavaWriter(shared, cluster.bootstrap, folder)
    except PeersUnavailableError as error:
        print(f"no Java client writes: {error}", file=sys.stderr)
        return None


def _break_things(cluster: ProcessCluster, admin: AdminClient, shared: SharedHistory, chaos: Round) -> dict[str, int]:
    faults = NodeFaults(cluster, admin, Random(chaos.seed))
    others: list[Weather | RotationAmongFaults] = []
    if (weather := _weather(cluster, Random(chaos.seed))) is not None:
        others.append(weather)
    if chaos.has_certificates:
        others.append(RotationAmongFaults(cluster, Random(chaos.seed)))
    deadline = time.monotonic() + chaos.seconds
    time.sleep(1)
    for other in others:
        other.start()
    while shared.broken is None and (time.monotonic() < deadline or faults.counts.total() < chaos.least_faults):
        faults.one()
    counts = faults.counts
    for other in others:
        other.end()
        counts = counts + other.counts
    return dict(counts)


def _weather(cluster: ProcessCluster, random: Random) -> Weather | None:
    if cluster.network is not None:
        return NetworkWeather(cluster, random)
    return LinkWeather(cluster, random) if cluster.links else None
