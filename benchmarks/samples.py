"""A sample: one figure from one run of one system, with what the run cost."""

from collections.abc import Mapping

import msgspec

from benchmarks import process_usage
from benchmarks.cases import Unit
from benchmarks.generator import Load
from benchmarks.systems import Durability, System

MIB = 1024 * 1024


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    measure: str
    durability: Durability
    system: str
    unit: Unit
    value: float
    requests: int = 0
    records: int = 0
    size_bytes: int = 0
    seconds: float = 0.0
    server_cpu_seconds: float = 0.0
    generator_cpu_seconds: float = 0.0
    # What else ran on the machine meanwhile: the noise. None where it was not watched.
    other_cpu_seconds: float | None = None


class Stopwatch:
    """CPU time of the server, and of everything else, from its making on."""

    def __init__(self, system: System, durability: Durability) -> None:
        self._system = system
        self._durability = durability
        self._server_before_s = process_usage.cpu_seconds(system.pid)
        self._busy_before_s = process_usage.machine_busy_seconds()

    def sample(self, measure: str, unit: Unit, load: Load) -> Sample:
        """A rate: how much of the unit the load got done in a second."""
        return self._sample(measure, unit, _amount(unit, load) / load.seconds, load)

    def latency_samples(self, latencies_us: Mapping[str, float], load: Load) -> list[Sample]:
        return [self._sample(measure, Unit.MICROSECONDS, value, load) for measure, value in latencies_us.items()]

    def _sample(self, measure: str, unit: Unit, value: float, load: Load) -> Sample:
        server_s = process_usage.cpu_seconds(self._system.pid) - self._server_before_s
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
            server_cpu_seconds=server_s,
            generator_cpu_seconds=load.generator_cpu_seconds,
            other_cpu_seconds=max(0.0, busy_s - server_s - load.generator_cpu_seconds),
        )


def _amount(unit: Unit, load: Load) -> float:
    match unit:
        case Unit.MEBIBYTES_PER_SECOND:
            return load.size_bytes / MIB
        case Unit.REQUESTS_PER_SECOND:
            return load.requests
        case Unit.RECORDS_PER_SECOND:
            return load.records
        case _:
            raise ValueError(f"{unit} is not a rate")
