"""The cluster's part of a benchmark run: measure, print the page, keep the results."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import ceil
from pathlib import Path

import msgspec

from benchmarks.cluster import cases
from benchmarks.cluster.asking import Asking
from benchmarks.cluster.cases import Client, ClusterSettings, Part, Rounds
from benchmarks.cluster.failover import FailoverRunner, Round
from benchmarks.cluster.report import make_report, render, save
from benchmarks.cluster.systems import NODE_IDS, ClusterSystem, KafkaCluster, QuorateCluster
from benchmarks.cluster.throughput import ThroughputRunner
from benchmarks.cluster.topics import TopicsRunner
from benchmarks.report import Environment
from benchmarks.samples import Sample
from benchmarks.systems import Durability
from tests.peers.jars import PeersUnavailableError, kafka_classpath
from tests.peers.network import Network, NetworkUnavailable

Say = Callable[[str], None]
_READY_TIMEOUT_S = 120.0


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about the cluster's part."""

    words: tuple[str, ...]
    quick: bool
    durabilities: tuple[Durability, ...]
    systems: str | None
    profile: Path | None
    rounds: int | None
    apache_kafka_rounds: int | None

    @property
    def parts(self) -> list[Part]:
        return [part for part in Part if not self.words or part.startswith(self.words)]

    @property
    def settings(self) -> ClusterSettings:
        settings = cases.QUICK if self.quick else cases.FULL
        return msgspec.structs.replace(
            settings,
            quorate_rounds=_rounds(settings.quorate_rounds, self.rounds),
            apache_kafka_rounds=_rounds(settings.apache_kafka_rounds, self.apache_kafka_rounds),
        )

    @property
    def is_whole(self) -> bool:
        return not self.quick and self.systems is None and self.profile is None


def measure_cluster(choice: Choice, environment: Environment, say: Say) -> None:
    run = _ClusterRun(choice, environment, say)
    samples: list[Sample] = []
    rounds: list[Round] = []
    for part in choice.parts:
        match part:
            case Part.TOPICS:
                samples += run.topics()
            case Part.THROUGHPUT:
                samples += run.throughput()
            case Part.FAILOVER:
                rounds += run.failover()
    report = make_report(
        environment, choice.settings, choice.parts, left_out=run.left_out, samples=samples, rounds=rounds
    )
    print(render(report))
    if choice.is_whole:
        print(f"kept: {save(report)}")


class _ClusterRun:
    def __init__(self, choice: Choice, environment: Environment, say: Say) -> None:
        self._choice = choice
        self._environment = environment
        self._say = say
        self.left_out: list[str] = []

    def topics(self) -> Iterator[Sample]:
        """One system after the other: an idle node next to a busy one is not idle."""
        runner = TopicsRunner(self._choice.settings, self._say)
        for make in self._makers(Durability.FSYNC, None):
            with _discarded(make()) as system:
                yield from runner.measure_start(system)
            with _discarded(make()) as system:
                yield from runner.measure(system)

    def throughput(self) -> Iterator[Sample]:
        runner = ThroughputRunner(self._choice.settings, self._say)
        for durability in self._choice.durabilities:
            with ExitStack() as stack:
                systems = [stack.enter_context(_discarded(make())) for make in self._makers(durability, None)]
                for system in systems:
                    system.launch()
                    Asking(system).wait_for_all_nodes(_READY_TIMEOUT_S)
                yield from runner.measure(systems, durability)
                if self._choice.profile:
                    for system in systems:
                        system.stop()
                    self._say(f"profiles of the nodes: {self._choice.profile}.<node id>")

    def failover(self) -> Iterator[Round]:
        """One system after the other, each with its defaults."""
        settings = self._choice.settings
        with ExitStack() as stack:
            network = self._network(stack)
            runner = FailoverRunner(settings, self._clients(), network, self._say)
            for make in self._makers(None, network):
                with _discarded(make()) as system:
                    is_ours = isinstance(system, QuorateCluster)
                    rounds = settings.quorate_rounds if is_ours else settings.apache_kafka_rounds
                    yield from runner.measure(system, rounds)

    def _makers(self, durability: Durability | None, network: Network | None) -> Iterator[Callable[[], ClusterSystem]]:
        """Without a durability, each system has its own default."""
        if self._choice.systems != "apache-kafka":
            yield lambda: QuorateCluster(durability or Durability.FSYNC, network, self._choice.profile)
        if self._environment.apache_kafka is not None:
            heap_mb = self._environment.apache_kafka_heap_mb
            yield lambda: KafkaCluster(durability or Durability.OS, heap_mb, network)

    def _clients(self) -> Sequence[Client]:
        try:
            kafka_classpath()
        except PeersUnavailableError as error:
            self.left_out.append(f"the Java client: {error}")
            return [Client.LIBRDKAFKA]
        return list(Client)

    def _network(self, stack: ExitStack) -> Network | None:
        try:
            return stack.enter_context(Network(NODE_IDS))
        except NetworkUnavailable as error:
            self.left_out.append(f"a cut network: {error}")
            return None


@contextmanager
def _discarded(system: ClusterSystem) -> Iterator[ClusterSystem]:
    try:
        yield system
    finally:
        system.discard()


def _rounds(default: Rounds, killed: int | None) -> Rounds:
    """As many as the command line says: of each kill, and of freezes and cuts, which are two faults each."""
    return default if killed is None else Rounds(killed=killed, silent=ceil(killed / 2))
