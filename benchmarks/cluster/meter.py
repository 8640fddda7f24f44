"""CPU time of a cluster's nodes, and of everything else on the machine, from a moment on; samples made of it."""

from statistics import fmean

from benchmarks import process_usage
from benchmarks.cases import Unit
from benchmarks.cluster.systems import ClusterSystem
from benchmarks.generator import Load
from benchmarks.samples import MIB, Sample
from benchmarks.systems import Durability


class ClusterMeter:
    def __init__(self, system: ClusterSystem, durability: Durability) -> None:
        self._system = system
        self._durability = durability
        self._nodes_before_s = nodes_cpu_seconds(system)
        self._busy_before_s = process_usage.machine_busy_seconds()

    def throughput(self, measure: str, load: Load) -> Sample:
        return self.sample(measure, Unit.MEBIBYTES_PER_SECOND, load.size_bytes / MIB / load.seconds, load)

    def sample(self, measure: str, unit: Unit, value: float, load: Load) -> Sample:
        nodes_s = nodes_cpu_seconds(self._system) - self._nodes_before_s
        busy_s = process_usage.machine_busy_seconds() - self._busy_before_s
        return Sample(
            measure=measure,
            durability=self._durability,
            system=self._system.name,
            unit=unit,
            value=value,
            requests=load.requests,
            records=load.records,
            size_bytes=load.size_bytes,
            seconds=load.seconds,
            server_cpu_seconds=nodes_s,
            generator_cpu_seconds=load.generator_cpu_seconds,
            other_cpu_seconds=max(0.0, busy_s - nodes_s - load.generator_cpu_seconds),
        )


def nodes_cpu_seconds(system: ClusterSystem) -> float:
    return sum(process_usage.cpu_seconds(node.process.pid) for node in system.nodes.values())


def memory_of_a_node_bytes(system: ClusterSystem) -> float:
    """The mean over the nodes, of what is theirs: pages that they share are divided among them."""
    return fmean(process_usage.proportional_memory_bytes(node.process.pid) for node in system.nodes.values())


def peak_memory_of_a_node_bytes(system: ClusterSystem) -> float:
    return fmean(process_usage.peak_memory_bytes(node.process.pid) for node in system.nodes.values())
