"""What happens to a cluster of processes: one fault after the other to the nodes, and bad weather on their links."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from random import Random

from confluent_kafka.admin import AdminClient

from tests.chaos.cluster import ProcessCluster
from tests.chaos.links import Link
from tests.chaos.load import TOPIC
from tests.simulation.replication.history import HistoryBroken

_REMOVAL_ATTEMPTS = 5
#: Before the rest of a cut: together longer than a node's session.
_LONG_CUT_S = 1.5


class NodeFaults:
    """Processes are killed, frozen, stopped, added and removed, and a disk is filled. From the main thread."""

    def __init__(self, cluster: ProcessCluster, admin: AdminClient, random: Random) -> None:
        self._cluster = cluster
        self._admin = admin
        self._random = random
        self.counts: Counter[str] = Counter()
        self._faults: list[Callable[[], None]] = [
            *([self._kill_leader] * 4),
            *([self._kill] * 2),
            *([self._freeze] * 4),
            *([self._stop] * 2),
            self._kill_all,
            self._restart_one_by_one,
            self._add_and_remove,
        ]
        if cluster.small_disk is not None:
            self._faults += [self._fill_disk] * 2

    def one(self) -> None:
        fault = self._random.choice(self._faults)
        self.counts[fault.__name__.strip("_")] += 1
        fault()
        time.sleep(self._random.uniform(0.1, 1.0))

    def _kill(self) -> None:
        self._kill_and_restart(self._random.choice(self._cluster.node_ids))

    def _kill_leader(self) -> None:
        self._kill_and_restart(self._leader())

    def _kill_and_restart(self, node_id: int) -> None:
        self._cluster.kill(node_id)
        time.sleep(self._random.uniform(0.05, 1.5))
        self._cluster.start(node_id)

    def _kill_all(self) -> None:
        self._cluster.kill(*self._cluster.node_ids)
        self._cluster.start(*self._cluster.node_ids)

    def _stop(self) -> None:
        self._stop_and_restart(self._leader())

    def _restart_one_by_one(self) -> None:
        for node_id in self._cluster.node_ids:
            self._stop_and_restart(node_id)

    def _stop_and_restart(self, node_id: int) -> None:
        if self._cluster.stop(node_id) != 0:
            raise HistoryBroken(f"node {node_id} did not stop in good order")
        self._cluster.start(node_id)

    def _freeze(self) -> None:
        node_id = self._leader()
        self._cluster.freeze(node_id)
        time.sleep(self._random.choice([0.2, 0.5, 1.0, 4.0]))
        self._cluster.thaw(node_id)

    def _fill_disk(self) -> None:
        """The node may end itself of it, as it does when it cannot vote any more; somebody makes room and starts it."""
        disk, node_id = self._cluster.small_disk, self._cluster.small_disk_owner
        assert disk is not None
        disk.fill(leave_bytes=self._random.choice([0, 0, 20_000, 200_000]))
        time.sleep(self._random.uniform(0.5, 3.0))
        disk.make_room()
        if not self._cluster.is_running(node_id):
            self._cluster.start(node_id)

    def _add_and_remove(self) -> None:
        node_id = self._cluster.add_node()
        time.sleep(self._random.uniform(0.1, 1.0))
        for _ in range(_REMOVAL_ATTEMPTS):
            failure = self._cluster.remove_node(node_id)
            if failure is None:
                return
        raise HistoryBroken(f"node {node_id} cannot be removed: {failure}")

    def _leader(self) -> int:
        partitions = self._admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.values()
        running = self._cluster.node_ids
        leaders = [partition.leader for partition in partitions if partition.leader in running]
        return self._random.choice(leaders or list(running))


class Weather(threading.Thread):
    """Bad links between nodes, one after the other, while other things happen to the nodes themselves."""

    def __init__(self, cluster: ProcessCluster, random: Random) -> None:
        super().__init__(name="weather", daemon=True)
        self.cluster = cluster
        self.random = random
        self.counts: Counter[str] = Counter()
        self._ends = threading.Event()
        self._failure: Exception | None = None

    def strike(self) -> tuple[str, Callable[[], None]]:
        """Make something bad; returns what it is called, and how it is made good again."""
        raise AssertionError("there is no weather here")

    def run(self) -> None:
        try:
            while not self._ends.is_set():
                name, heal = self.strike()
                self.counts[name] += 1
                self._ends.wait(self.random.uniform(0.1, 1.5))
                heal()
                self._ends.wait(self.random.uniform(0.1, 0.5))
        except Exception as error:
            self._failure = error

    def end(self) -> None:
        self._ends.set()
        self.join(30)
        if self._failure is not None:
            raise self._failure


class LinkWeather(Weather):
    """Slow, lossy and cut, by the proxies between the nodes."""

    def strike(self) -> tuple[str, Callable[[], None]]:
        link = self.random.choice(list(self.cluster.links.values()))
        fault = self.random.choice([self._slow, self._lossy, self._deaf, self._mute, self._cut_off, self._broken])
        fault(link)
        return f"link_{fault.__name__.strip('_')}", link.heal

    def _slow(self, link: Link) -> None:
        link.inbound.delay_s = link.outbound.delay_s = 0.05

    def _lossy(self, link: Link) -> None:
        link.inbound.stall_probability = link.outbound.stall_probability = 0.2

    def _deaf(self, link: Link) -> None:
        """The node does not hear the others, and is heard."""
        link.inbound.is_cut = True

    def _mute(self, link: Link) -> None:
        """The others do not hear what the node answers."""
        link.outbound.is_cut = True

    def _cut_off(self, link: Link) -> None:
        link.inbound.is_cut = link.outbound.is_cut = True

    def _broken(self, _: Link) -> None:
        self.cluster.break_links()


class NetworkWeather(Weather):
    """Networks of nodes that are cut, one way or both: neither other nodes nor clients get through."""

    def strike(self) -> tuple[str, Callable[[], None]]:
        network = self.cluster.network
        assert network is not None
        node_id = self.random.choice(self.cluster.node_ids)
        fault = self.random.choice([network.cut, network.deafen, network.silence])
        fault(node_id)
        if self.random.random() < 0.3:
            self._ends.wait(_LONG_CUT_S)
        return f"network_{fault.__name__}", lambda: network.mend(node_id)
