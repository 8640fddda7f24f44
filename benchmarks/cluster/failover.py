"""A node fails while stock clients write to one partition: how long until the next write is acknowledged.

Both clients write all the time. Beside them a plain connection asks the nodes that are left, every few milliseconds,
who leads, and writes as soon as there is somebody: that is the cluster's own share of the time. What a client takes
longer is its own waiting, its backoff and its timeouts.
"""

import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from benchmarks.cluster import admin_wire
from benchmarks.cluster.admin_wire import PartitionView
from benchmarks.cluster.asking import Asking
from benchmarks.cluster.cases import Client, ClusterSettings, Fault, Rounds
from benchmarks.cluster.probe import Probe
from benchmarks.cluster.systems import NODE_IDS, ClusterNode, ClusterSystem, bootstrap_servers
from benchmarks.connection import Connection
from benchmarks.measurements import prepared_batches
from tests.peers.network import Network

TOPIC = "failover"
# Each node leads one partition.
_ASSIGNMENTS = [NODE_IDS[first:] + NODE_IDS[:first] for first in range(len(NODE_IDS))]
_READY_TIMEOUT_S = 120.0
_KILLED_LIMIT_S = 60.0
_LOOK_INTERVAL_S = 0.002
_ASK_INTERVAL_S = 0.01
# Of the 150 that a client hands over in 300 ms.
_STEADY_ACKNOWLEDGEMENTS = 100


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """All times from the moment of the fault. None for a client that got nothing within the limit."""

    system: str
    fault: Fault
    new_leader_ms: float  # Until a node that is left tells of a leader and a set of replicas without the failed node.
    server_ms: float  # Until a plain write to that leader is acknowledged by all replicas in sync.
    client_ms: dict[Client, float | None]
    failed_records: dict[Client, int]


class FailoverRunner:
    def __init__(
        self, settings: ClusterSettings, clients: Sequence[Client], network: Network | None, say: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._clients = clients
        self._network = network
        self._say = say

    def measure(self, system: ClusterSystem, rounds: Rounds) -> Iterator[Round]:
        """Runs the system by itself from start to end."""
        asking = Asking(system)
        system.launch()
        asking.wait_for_all_nodes(_READY_TIMEOUT_S)
        asking.create_assigned_topic(TOPIC, _ASSIGNMENTS)
        _make_whole(asking)
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quorate-benchmark-probes-")))
            probes = [
                stack.enter_context(
                    Probe(client, bootstrap_servers(system), TOPIC, len(_ASSIGNMENTS), folder / f"{client}.log")
                )
                for client in self._clients
            ]
            for fault in Fault:
                if fault.cuts and self._network is None:
                    continue
                for _ in range(rounds.of(fault)):
                    done = self._round(system, asking, fault, probes)
                    self._tell(done)
                    yield done

    def _round(self, system: ClusterSystem, asking: Asking, fault: Fault, probes: Sequence[Probe]) -> Round:
        partition, victim = self._aim(asking, fault)
        for probe in probes:
            probe.forget()
            probe.switch_to(partition)
        _wait_until_steady(asking, probes)
        node = system.nodes[victim]
        with ExitStack() as stack:
            left = {
                each.node_id: stack.enter_context(Connection(each.address))
                for each in system.nodes.values()
                if each is not node
            }
            fault_ns = time.monotonic_ns()
            self._make(fault, node)
            # From here on the node answers nobody: what is handed over now, others must have acknowledged.
            gone_ns = time.monotonic_ns()
            new_leader_ns, server_ns = _watch(left, partition, victim)
        limit_s = _KILLED_LIMIT_S if fault.kills else self._settings.silent_client_limit_s
        answers = _first_acknowledged(probes, gone_ns, fault_ns + int(limit_s * 1e9))
        self._repair(fault, node)
        _make_whole(asking)
        return Round(
            system=system.name,
            fault=fault,
            new_leader_ms=(new_leader_ns - fault_ns) / 1e6,
            server_ms=(server_ns - fault_ns) / 1e6,
            client_ms={
                client: (first_ns - fault_ns) / 1e6 if first_ns else None for client, (first_ns, _) in answers.items()
            },
            failed_records={client: failed for client, (_, failed) in answers.items()},
        )

    def _aim(self, asking: Asking, fault: Fault) -> tuple[int, int]:
        """A partition to write to and the node that will fail, in the roles that the fault asks for."""

        def look() -> tuple[int, int] | None:
            quorum_leader = asking.quorum_leader()
            for partition in asking.partitions(TOPIC) or ():
                leads_both = partition.leader == quorum_leader
                if quorum_leader is not None and leads_both == fault.hits_both:
                    return partition.index, partition.leader if fault.hits_partition_leader else quorum_leader
            return None

        return asking.eventually(look, f"the roles for: {fault}", _READY_TIMEOUT_S)

    def _make(self, fault: Fault, node: ClusterNode) -> None:
        """Returns when the node has stopped."""
        if fault.kills:
            node.process.kill()
        elif fault.freezes:
            node.process.send_signal(signal.SIGSTOP)
            while _state(node.process.pid) != "T":
                time.sleep(0.0005)
        else:
            assert self._network is not None
            self._network.cut(node.node_id)

    def _repair(self, fault: Fault, node: ClusterNode) -> None:
        if fault.kills:
            node.launch()
        elif fault.freezes:
            node.process.send_signal(signal.SIGCONT)
        else:
            assert self._network is not None
            self._network.mend(node.node_id)

    def _tell(self, done: Round) -> None:
        clients = ", ".join(
            f"{client} {'-' if taken_ms is None else f'{taken_ms:,.0f} ms'}"
            for client, taken_ms in done.client_ms.items()
        )
        self._say(
            f"{done.system}, {done.fault}: leader after {done.new_leader_ms:,.0f} ms, plain write"
            f" {done.server_ms:,.0f} ms, {clients}"
        )


def _watch(left: dict[int, Connection], partition: int, victim: int) -> tuple[int, int]:
    """Ask the nodes that are left in turn; when the partition does without the victim, and when it takes a write."""
    frame = admin_wire.metadata_request([TOPIC])
    while True:
        for connection in left.values():
            view = admin_wire.parse_metadata(connection.ask(frame)).topics[TOPIC][partition]
            if view.leader in left and victim not in view.isr:
                new_leader_ns = time.monotonic_ns()
                batch = prepared_batches("1rec").content[0]
                left[view.leader].write_until_acknowledged(
                    TOPIC, partition, batch, time.perf_counter() + _KILLED_LIMIT_S
                )
                return new_leader_ns, time.monotonic_ns()
            time.sleep(_LOOK_INTERVAL_S)


def _first_acknowledged(
    probes: Sequence[Probe], handed_over_after_ns: int, until_ns: int
) -> dict[Client, tuple[int, int]]:
    while True:
        answers = {probe.client: probe.first_acknowledged_ns(handed_over_after_ns) for probe in probes}
        if all(first_ns for first_ns, _ in answers.values()) or time.monotonic_ns() > until_ns:
            return answers
        time.sleep(_ASK_INTERVAL_S)


def _wait_until_steady(asking: Asking, probes: Sequence[Probe]) -> None:
    def look() -> bool | None:
        return all(probe.acknowledged_lately() >= _STEADY_ACKNOWLEDGEMENTS for probe in probes) or None

    asking.eventually(look, "all clients to write steadily", _READY_TIMEOUT_S)


def _make_whole(asking: Asking) -> None:
    """All replicas in sync, and each node leads its share again."""
    asking.wait_until_whole(TOPIC, len(_ASSIGNMENTS), _READY_TIMEOUT_S)

    def look() -> tuple[PartitionView, ...] | None:
        partitions = asking.partitions(TOPIC)
        if partitions and all(each.has_preferred_leader and each.is_whole for each in partitions):
            return partitions
        asking.elect_preferred_leaders()
        return None

    asking.eventually(look, "the preferred leaders", _READY_TIMEOUT_S)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
