"""A fuzz of one port: frames go to real nodes, somebody uses the cluster meanwhile, and in the end all is as before."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, get_args

import msgspec

from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.ids import DirectoryId
from tests.eventually import eventually
from tests.fuzz.attack import Address, Tally, Target, attack
from tests.fuzz.bursts import Burst, Bursts
from tests.fuzz.client_bursts import ClientBursts
from tests.fuzz.health import Health, LogWatch, signature
from tests.fuzz.joining import join_as_learner
from tests.fuzz.peer_bursts import LEARNER_FOLDER, LEARNER_ID, PeerBursts
from tests.fuzz.target import ONE_NODE, furnish, start_cluster
from tests.fuzz.witness import Witness
from tests.fuzz.world import World
from tests.peers.quorate_cluster import IDS, QuorateCluster
from tests.peers.quorate_node import QuorateNode

MOST_MEMORY_BYTES = 64 * 1024 * 1024
#: Between two looks at the nodes.
_FRAMES_PER_LOOK = 4_000
#: What a node keeps for good, once it has met everything: the codecs of all messages, buffers, threads.
WARM_UP_PART = 0.1
SETTLED_WITHIN_S = 90
#: Threads that a pool starts when it first needs them, and connections between nodes and of the witness.
_SLACK_THREADS = 16
_SLACK_SOCKETS = 10


Port = Literal["client", "peer", "door"]
PORTS: tuple[Port, ...] = get_args(Port)


class FuzzFailed(AssertionError):
    """Something that no stranger should be able to do was done to a node."""

    def __init__(self, reason: str, first: int, frames: int) -> None:
        super().__init__(reason)
        self.first = first
        self.frames = frames


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    port: Port
    seed: int
    frames: int
    #: The index of the first frame.
    first: int = 0
    #: Note what the nodes log, each kind once, and fail in the end.
    keeps_going: bool = False

    #: Whether requests to the client port may have thousands of elements.
    is_wide: bool = False

    @property
    def node_ids(self) -> tuple[int, ...]:
        return ONE_NODE if self.port == "client" else IDS

    @property
    def end(self) -> int:
        return self.first + self.frames


class Report(msgspec.Struct, frozen=True, kw_only=True):
    frames: int
    answers: int
    connections: int
    ended: int
    seconds: float
    #: Of the node that has grown most, from after the warm-up to its peak.
    grown_bytes: int
    acknowledged: int
    #: What was logged at WARNING and above, by the words that a line starts with.
    warnings: dict[str, int]


def run_fuzz(folder: Path, plan: Plan, *, progress: Callable[[str], None] = lambda _: None) -> Report:
    """Raises ``FuzzFailed`` where a node crashed, logged a traceback, grew, or something was lost or altered."""
    if plan.port == "door":
        from tests.fuzz.door_run import run_door_fuzz

        return run_door_fuzz(folder, plan, progress=progress)
    with start_cluster(folder, plan.node_ids) as cluster:
        fuzz = _Fuzz(cluster, plan, furnish(cluster), progress)
        fuzz.attack()
        fuzz.check_afterwards()
        return fuzz.report()


class _Fuzz:
    def __init__(self, cluster: QuorateCluster, plan: Plan, world: World, progress: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._plan = plan
        self._world = world
        self._progress = progress
        self._nodes = list(cluster.nodes.values())
        self._watches = [LogWatch(node) for node in self._nodes]
        self._witness = Witness(cluster.bootstrap)
        self._tally = Tally()
        self._next = plan.first
        self._base = [Health.of(node) for node in self._nodes]
        self._is_warm = False
        self._peaks = [0 for _ in self._nodes]
        self._seconds = 0.0
        self._keeps_going = plan.keeps_going
        self._troubles: dict[str, int] = {}
        self._term = _term(cluster)
        self._bursts = self._make_bursts()

    def attack(self) -> None:
        self._witness.start()
        began = time.monotonic()
        warm_at = self._plan.first + int(self._plan.frames * WARM_UP_PART)
        with asyncio.Runner() as runner:
            while self._next < self._plan.end:
                end = min(self._plan.end, self._next + _FRAMES_PER_LOOK)
                self._tally.add(runner.run(attack(self._target_of, self._bursts_between(self._next, end))))
                self._look(self._next, end - self._next)
                self._next = end
                if not self._is_warm and end >= warm_at:
                    self._is_warm = True
                    self._base = [Health.of(node) for node in self._nodes]
                self._say(time.monotonic() - began)
        self._seconds = time.monotonic() - began
        self._witness.end()

    def check_afterwards(self) -> None:
        self._look(self._plan.first, self._plan.frames)
        self._require(_term(self._cluster) == self._term, "there was an election")
        fenced = [node.node_id for node in self._nodes if "broker fenced" in node.log_text()]
        self._require(not fenced, f"a broker was fenced, as the log of {fenced} says")
        for node, base in zip(self._nodes, self._base, strict=True):
            _wait_until_settled(node, base)
        self._check_restart()
        self._require(not self._troubles, f"what was logged, and how often: {self._troubles}")

    def report(self) -> Report:
        warnings: dict[str, int] = {}
        for watch in self._watches:
            for kind, count in watch.kinds.items():
                warnings[kind] = warnings.get(kind, 0) + count
        return Report(
            frames=self._tally.frames,
            answers=self._tally.answers,
            connections=self._tally.connections,
            ended=self._tally.ended,
            seconds=round(self._seconds, 1),
            grown_bytes=self._grown_bytes,
            acknowledged=self._witness.acknowledged,
            warnings=warnings,
        )

    @property
    def _grown_bytes(self) -> int:
        return max(peak - base.resident_bytes for peak, base in zip(self._peaks, self._base, strict=True))

    def _make_bursts(self) -> Bursts:
        if self._plan.port == "client":
            return ClientBursts(self._plan.seed, self._world, is_wide=self._plan.is_wide)
        join_as_learner(self._cluster, LEARNER_ID, DirectoryId(LEARNER_FOLDER))
        return PeerBursts(self._plan.seed, self._world, self._term)

    def _bursts_between(self, first: int, end: int) -> Iterator[Burst]:
        each = self._bursts.frames_per_burst
        for number in range(first // each, (end - 1) // each + 1):
            yield self._bursts.burst(number).between(first - number * each, end - number * each)

    def _target_of(self, burst: Burst) -> Target:
        node = self._nodes[burst.number % len(self._nodes)]
        client_port = _address(node.bootstrap)
        peer_port = _address(str(node.settings["peer_listen"]))
        if self._plan.port == "client":
            return Target(client_port, client_port)
        return Target(peer_port, client_port, self._cluster.secrets)

    def _look(self, first: int, frames: int) -> None:
        for place, (node, watch) in enumerate(zip(self._nodes, self._watches, strict=True)):
            for trouble in watch.troubles():
                self._note(f"node {node.node_id} logged:\n{trouble}", signature(trouble), first, frames)
            ended = f"node {node.node_id} has ended:\n{node.log_text()[-3000:]}"
            self._require(node.process.running, ended, first, frames)
            self._peaks[place] = max(self._peaks[place], node.resident_bytes())
        if self._is_warm:
            grown = f"a node has grown by {self._grown_bytes >> 20} MiB"
            self._require(self._grown_bytes < MOST_MEMORY_BYTES, grown, first, frames)
        self._require(self._witness.broken is None, f"the witness says: {self._witness.broken}", first, frames)

    def _check_restart(self) -> None:
        """The nodes stop in order and in time, come back, and have everything."""
        for node in self._nodes:
            status = node.stop()
            self._require(status == 0, f"node {node.node_id} stopped with {status}")
        self._cluster.restart(self._cluster.nodes)
        self._witness.check_everything(self._cluster.bootstrap)
        self._look(self._plan.first, self._plan.frames)

    def _note(self, reason: str, kind: str, first: int, frames: int) -> None:
        if not self._keeps_going:
            raise FuzzFailed(reason, first, frames)
        if kind not in self._troubles:
            self._progress(f"frames from {first} on: {reason}")
        self._troubles[kind] = self._troubles.get(kind, 0) + 1

    def _require(self, holds: bool, reason: str, first: int | None = None, frames: int | None = None) -> None:
        if not holds:
            plan = self._plan
            raise FuzzFailed(reason, plan.first if first is None else first, frames or plan.frames)

    def _say(self, seconds: float) -> None:
        done = self._next - self._plan.first
        memory = ", ".join(f"{node.resident_bytes() >> 20} MiB" for node in self._nodes)
        self._progress(f"{done} frames, {done / seconds:.0f}/s, {self._tally.answers} answers, {memory}")


def _address(place: str) -> Address:
    host, port = place.rsplit(":", 1)
    return host, int(port)


def _wait_until_settled(node: QuorateNode, base: Health) -> None:
    what = f"node {node.node_id} to come back to {base}, it is at {Health.of(node)}"
    eventually(lambda: is_settled(Health.of(node), base), what, SETTLED_WITHIN_S)


def is_settled(now: Health, base: Health) -> bool:
    return (
        now.threads <= base.threads + _SLACK_THREADS
        and now.sockets <= base.sockets + _SLACK_SOCKETS
        and now.deleted_files == 0
    )


def _term(cluster: QuorateCluster) -> int:
    servers = tuple(node.bootstrap for node in cluster.nodes.values())
    with KafkaClient(ClientConfig(bootstrap_servers=servers)) as client:
        return client.quorum.describe().term
