"""Replicated writes: as fast as they are acknowledged, then at half the load of the slower system for the latency."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median, quantiles
from uuid import uuid4

from benchmarks import process_usage
from benchmarks.cases import REQUESTS_IN_FLIGHT, WARM_COMPILING_SHARE, Unit
from benchmarks.cluster import cases, load
from benchmarks.cluster.asking import Asking
from benchmarks.cluster.cases import ClusterSettings, ProduceCase
from benchmarks.cluster.meter import ClusterMeter, nodes_cpu_seconds, peak_memory_of_a_node_bytes
from benchmarks.cluster.systems import Address, ClusterSystem
from benchmarks.connection import Connection
from benchmarks.measurements import prepared_batches
from benchmarks.samples import MIB, Sample
from benchmarks.systems import Durability
from benchmarks.turns import in_turn

_READY_TIMEOUT_S = 90.0
_REMOVAL_TIMEOUT_S = 5.0
_WARM_UP_STEP_SECONDS = 0.7
MEMORY = "cluster-memory-peak"


class ThroughputRunner:
    def __init__(self, settings: ClusterSettings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say

    def measure(self, systems: Sequence[ClusterSystem], durability: Durability) -> Iterator[Sample]:
        """The systems run already, and take turns."""
        for system in systems:
            yield self._tell(_warm_up(system, durability, self._settings))
        for case in self._settings.produce_cases:
            rates: dict[str, list[float]] = {system.name: [] for system in systems}
            for repeat in range(self._settings.repeats):
                for system in in_turn(systems, repeat):
                    sample = self._throughput(system, durability, case)
                    rates[system.name].append(sample.requests / sample.seconds)
                    yield self._tell(sample)
            half_load = min(median(each) for each in rates.values()) / 2
            for repeat in range(self._settings.latency_repeats):
                for system in in_turn(systems, repeat):
                    yield from map(self._tell, self._latency(system, durability, case, half_load))
        for system in systems:
            yield self._tell(_memory(system, durability))

    def _throughput(self, system: ClusterSystem, durability: Durability, case: ProduceCase) -> Sample:
        batches = prepared_batches(case.batch_name)
        with _temporary_topic(system, case, system.topic_configs) as (topic, leaders):
            meter = ClusterMeter(system, durability)
            done = load.produce(
                leaders, topic, batches, depth=REQUESTS_IN_FLIGHT, seconds=self._settings.produce_seconds
            )
            return meter.throughput(case.throughput_name, done)

    def _latency(
        self, system: ClusterSystem, durability: Durability, case: ProduceCase, requests_per_second: float
    ) -> list[Sample]:
        batches = prepared_batches(case.batch_name)
        with _temporary_topic(system, case, system.topic_configs) as (topic, leaders):
            meter = ClusterMeter(system, durability)
            done, latencies_us = load.produce_paced(
                leaders,
                topic,
                batches,
                requests_per_second=requests_per_second,
                seconds=self._settings.latency_seconds,
            )
            cuts = quantiles(latencies_us, n=100)
            return [
                meter.sample(case.latency_name(percentile), Unit.MICROSECONDS, cuts[percentile - 1], done)
                for percentile in (50, 99)
            ]

    def _tell(self, sample: Sample) -> Sample:
        self._say(f"{sample.durability} {sample.measure} {sample.system}: {sample.value:,.2f} {sample.unit}")
        return sample


def _warm_up(system: ClusterSystem, durability: Durability, settings: ClusterSettings) -> Sample:
    """Use it in the shapes that will be timed, until its nodes hardly compile any more."""
    deadline = time.perf_counter() + settings.warm_up_timeout_s
    while True:
        busy_before_s, compiling_before_s = nodes_cpu_seconds(system), _compiler_cpu_seconds(system)
        for case in settings.produce_cases:
            # Without the topic configs of the run: the disk would hold the work up, and with it the compiler.
            with _temporary_topic(system, case, ()) as (topic, leaders):
                batches = prepared_batches(case.batch_name)
                load.produce(leaders, topic, batches, depth=REQUESTS_IN_FLIGHT, seconds=_WARM_UP_STEP_SECONDS)
        busy_s = nodes_cpu_seconds(system) - busy_before_s
        share = (_compiler_cpu_seconds(system) - compiling_before_s) / max(busy_s, 0.01)
        if share <= WARM_COMPILING_SHARE or time.perf_counter() > deadline:
            return Sample(
                measure=cases.COMPILING, durability=durability, system=system.name, unit=Unit.SHARE, value=share
            )


def _compiler_cpu_seconds(system: ClusterSystem) -> float:
    return sum(process_usage.compiler_cpu_seconds(node.process.pid) for node in system.nodes.values())


def _memory(system: ClusterSystem, durability: Durability) -> Sample:
    return Sample(
        measure=MEMORY,
        durability=durability,
        system=system.name,
        unit=Unit.MEBIBYTES,
        value=peak_memory_of_a_node_bytes(system) / MIB,
    )


@contextmanager
def _temporary_topic(
    system: ClusterSystem, case: ProduceCase, configs: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, list[Address]]]:
    """A new topic with all replicas in sync and one batch in each partition, and the leaders' addresses."""
    topic = f"bench-{uuid4().hex[:8]}"
    asking = Asking(system)
    asking.create_topic(topic, case.partitions, configs)
    partitions = asking.wait_until_whole(topic, case.partitions, _READY_TIMEOUT_S)
    leaders = [system.nodes[partition.leader].address for partition in partitions]
    primer = prepared_batches(case.batch_name).content[0]
    deadline = time.perf_counter() + _READY_TIMEOUT_S
    for partition, leader in enumerate(leaders):
        with Connection(leader) as connection:
            connection.write_until_acknowledged(topic, partition, primer, deadline)
    try:
        yield topic, leaders
    finally:
        asking.delete_topic(topic)
        _wait_for_removal(system, topic)


def _wait_for_removal(system: ClusterSystem, topic: str) -> None:
    """Let the files go first: writing them back would slow the other system's turn."""
    deadline = time.perf_counter() + _REMOVAL_TIMEOUT_S
    folders = [node.data_dir for node in system.nodes.values()]
    while any(any(folder.rglob(f"{topic}-*")) for folder in folders) and time.perf_counter() < deadline:
        time.sleep(0.02)
