"""Takes the systems through the cases in turns. Everything that is started here is stopped here, by its pid."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from benchmarks import cases, measurements
from benchmarks.cases import Selection, Transfer, Unit
from benchmarks.samples import Sample
from benchmarks.systems import Durability, System
from benchmarks.turns import in_turn

Case = Callable[[System, Durability], Iterator[Sample]]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how often; the same for both systems."""

    repeats: int
    #: Of what a goal is about: the ratios of single repeats lie far apart.
    judged_repeats: int
    produce_seconds: float
    fetch_seconds: float
    warm_up_timeout_s: float
    start_repeats: int
    transfers: tuple[Transfer, ...] = cases.TRANSFERS
    tls_transfers: tuple[Transfer, ...] = cases.TLS_TRANSFERS


class Runner:
    def __init__(self, settings: Settings, selection: Selection, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._selection = selection
        self._say = say

    def measure_start(self, systems: Sequence[System], durability: Durability) -> Iterator[Sample]:
        """From the process's start, on an empty data directory, to the first acknowledged write."""
        if not self._selection.wants(cases.START):
            return
        for repeat in range(self._settings.start_repeats):
            for system in in_turn(systems, repeat):
                try:
                    seconds = measurements.start(system)
                finally:
                    system.stop()
                sample = Sample(
                    measure=cases.START, durability=durability, system=system.name, unit=Unit.SECONDS, value=seconds
                )
                self._tell(sample)
                yield sample

    def measure_load(self, systems: Sequence[System], durability: Durability) -> Iterator[Sample]:
        """All that needs running systems: both run all the time, and take turns in being used."""
        yield from self._measure(systems, durability, cases.TRANSFERS, self._wants_stock_client(), self._wanted_cases())

    def measure_tls(self, systems: Sequence[System], durability: Durability) -> Iterator[Sample]:
        """Of systems that have a listener with TLS; a plain one beside it, for what is not timed."""
        transfers = self._wanted_transfers(self._settings.tls_transfers)
        yield from self._measure(systems, durability, cases.TLS_TRANSFERS, False, transfers)

    def _measure(
        self,
        systems: Sequence[System],
        durability: Durability,
        warm_up_transfers: Sequence[Transfer],
        with_stock_client: bool,
        wanted_cases: Iterator[tuple[Case, int]],
    ) -> Iterator[Sample]:
        try:
            for system in systems:
                measurements.start(system)
            for system in systems:
                sample = measurements.warm_up(
                    system,
                    durability,
                    warm_up_transfers,
                    with_stock_client=with_stock_client,
                    timeout_s=self._settings.warm_up_timeout_s,
                )
                self._tell(sample)
                yield sample
            for case, repeats in wanted_cases:
                for repeat in range(repeats):
                    for system in in_turn(systems, repeat):
                        yield from self._wanted_samples(case(system, durability))
            for system in systems:
                yield from self._wanted_samples(measurements.memory(system, durability))
        finally:
            for system in systems:
                system.stop()

    def _wanted_cases(self) -> Iterator[tuple[Case, int]]:
        """Each with how often it is repeated."""
        wants, settings = self._selection.wants, self._settings
        yield from self._wanted_transfers(settings.transfers)
        if wants(cases.LATENCY_P50) or wants(cases.LATENCY_P99):
            yield partial(measurements.latency, seconds=settings.produce_seconds), settings.repeats
        if self._wants_stock_client():
            yield self._stock, settings.repeats

    def _wanted_transfers(self, transfers: Sequence[Transfer]) -> Iterator[tuple[Case, int]]:
        settings = self._settings
        for case in transfers:
            names = (case.produce_name, case.fetch_name)
            if self._selection.wants_any(names):
                yield (
                    self._transfer(case),
                    settings.judged_repeats if any(map(cases.is_judged, names)) else settings.repeats,
                )

    def _wants_stock_client(self) -> bool:
        return any(map(self._selection.wants, (cases.STOCK_PRODUCE, cases.STOCK_CONSUME)))

    def _transfer(self, case: Transfer) -> Case:
        return partial(
            measurements.transfer,
            case=case,
            produce_seconds=self._settings.produce_seconds,
            fetch_seconds=self._settings.fetch_seconds,
        )

    def _stock(self, system: System, durability: Durability) -> Iterator[Sample]:
        return measurements.stock(
            system, durability, seconds=self._settings.produce_seconds, configs=system.topic_configs
        )

    def _wanted_samples(self, samples: Iterator[Sample]) -> Iterator[Sample]:
        for sample in samples:
            if self._selection.wants(sample.measure):
                self._tell(sample)
                yield sample

    def _tell(self, sample: Sample) -> None:
        self._say(f"{sample.durability} {sample.measure} {sample.system}: {sample.value:,.2f} {sample.unit}")
