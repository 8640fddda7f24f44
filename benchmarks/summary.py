"""From samples to ratios: medians, spread, and which goals are met. Pure."""

from collections.abc import Sequence
from enum import StrEnum
from statistics import median

import msgspec

from benchmarks.cases import COMPILING, GOALS, WARM_COMPILING_SHARE, Goal, Unit
from benchmarks.samples import Sample
from benchmarks.systems import ApacheKafkaSystem, Durability, QuorateSystem
from benchmarks.tls_limit.system import TlsLimitSystem

# Above this share of one core the client, not the system, may have been the limit.
GENERATOR_BOUND_SHARE = 0.85
# Above this share of one core, other processes may have decided the figure.
NOISY_SHARE = 0.3
# A row that reaches this share of a limit has nothing more to gain; what is left is noise and the work that it is for.
MIN_SHARE_OF_LIMIT = 0.9


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """One system divided by another, over the repeats."""

    median: float
    lowest: float
    highest: float


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measure under one durability. A system that was not measured has no figure."""

    measure: str
    durability: Durability
    unit: Unit
    quorate: float | None
    apache_kafka: float | None
    # Quorate divided by Apache Kafka.
    ratio: Ratio | None
    # Server CPU time for the same amount of work, Quorate divided by Apache Kafka.
    cpu_ratio: float | None
    # The largest share of a core that the client took, and that anything else on the machine took.
    generator_share: float
    # None where it was not watched.
    other_share: float | None
    # Of a program that has nothing else to do, where there is one; what Quorate reaches of it; and it of Apache Kafka.
    limit: float | None = None
    ratio_to_limit: Ratio | None = None
    ratio_of_limit: Ratio | None = None
    limit_generator_share: float = 0.0

    @property
    def generator_bound(self) -> bool:
        return self.generator_share > GENERATOR_BOUND_SHARE

    @property
    def limit_is_generator_bound(self) -> bool:
        return self.limit_generator_share > GENERATOR_BOUND_SHARE

    @property
    def is_noisy(self) -> bool:
        return self.other_share is not None and self.other_share > NOISY_SHARE


class Verdict(StrEnum):
    MET = "met"
    MISSED = "NOT met"
    NOT_MEASURED = "not measured"
    # A system that is still compiling itself is slower than it is: beating it proves nothing.
    NOT_WARM = "not judged, Apache Kafka was not warm"


class GoalResult(msgspec.Struct, frozen=True, kw_only=True):
    goal: Goal
    verdict: Verdict
    on_a_busy_machine: bool = False
    worst_ratio: float | None = None
    missed_by: tuple[str, ...] = ()
    # Met by what they reach of a limit that does not reach the goal itself.
    at_limit: tuple[str, ...] = ()


def summarise(samples: Sequence[Sample]) -> list[Row]:
    """One row for each measure and durability, in the order in which they were first taken."""
    groups: dict[tuple[str, Durability], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.measure, sample.durability), []).append(sample)
    return [_row(group) for group in groups.values()]


def judge(rows: Sequence[Row], goals: Sequence[Goal] = GOALS) -> list[GoalResult]:
    return [_judge_goal(goal, rows) for goal in goals]


def _row(group: Sequence[Sample]) -> Row:
    ours = [sample for sample in group if sample.system == QuorateSystem.name]
    theirs = [sample for sample in group if sample.system == ApacheKafkaSystem.name]
    limits = [sample for sample in group if sample.system == TlsLimitSystem.name]
    timed = [sample for sample in group if sample.seconds]
    other_shares = [
        sample.other_cpu_seconds / sample.seconds for sample in timed if sample.other_cpu_seconds is not None
    ]
    return Row(
        measure=group[0].measure,
        durability=group[0].durability,
        unit=group[0].unit,
        quorate=_median_value(ours),
        apache_kafka=_median_value(theirs),
        ratio=_ratio(ours, theirs),
        cpu_ratio=_cpu_ratio(ours, theirs),
        generator_share=_generator_share([*ours, *theirs]),
        other_share=max(other_shares, default=None),
        limit=_median_value(limits),
        ratio_to_limit=_ratio(ours, limits),
        ratio_of_limit=_ratio(limits, theirs),
        limit_generator_share=_generator_share(limits),
    )


def _generator_share(samples: Sequence[Sample]) -> float:
    return max((sample.generator_cpu_seconds / sample.seconds for sample in samples if sample.seconds), default=0.0)


def _median_value(samples: Sequence[Sample]) -> float | None:
    return median(sample.value for sample in samples) if samples else None


def _ratio(ours: Sequence[Sample], theirs: Sequence[Sample]) -> Ratio | None:
    """Of runs that followed each other: what slows the machine for a while slows both."""
    if any(sample.unit is Unit.SHARE for sample in theirs):
        return None  # A quality of the run, not of the systems.
    ratios = [our.value / their.value for our, their in zip(ours, theirs, strict=False) if their.value]
    if not ratios:
        return None
    return Ratio(median=median(ratios), lowest=min(ratios), highest=max(ratios))


def _cpu_ratio(ours: Sequence[Sample], theirs: Sequence[Sample]) -> float | None:
    our_cost, their_cost = _cpu_seconds_per_unit(ours), _cpu_seconds_per_unit(theirs)
    return our_cost / their_cost if our_cost and their_cost else None


def _cpu_seconds_per_unit(samples: Sequence[Sample]) -> float:
    """For one unit of a rate, or for one request where a latency was measured."""
    amount = sum(sample.value * sample.seconds if sample.unit.more_is_better else sample.requests for sample in samples)
    return sum(sample.server_cpu_seconds for sample in samples) / amount if amount else 0.0


def _judge_goal(goal: Goal, rows: Sequence[Row]) -> GoalResult:
    covered = [(row, row.ratio.median) for row in rows if row.ratio is not None and goal.covers(row.measure)]
    if not covered:
        return GoalResult(goal=goal, verdict=Verdict.NOT_MEASURED)
    below = [row for row, ratio in covered if not goal.is_met_by(ratio)]
    missed = tuple(f"{row.measure} ({row.durability})" for row in below if not _is_at_limit(row, goal))
    at_limit = tuple(f"{row.measure} ({row.durability})" for row in below if _is_at_limit(row, goal))
    ratios = [ratio for _, ratio in covered]
    cold = {row.durability for row in rows if row.measure.startswith(COMPILING) and is_cold(row)}
    if missed:
        verdict = Verdict.MISSED
    elif goal.at_least is not None and any(row.durability in cold for row, _ in covered):
        verdict = Verdict.NOT_WARM
    else:
        verdict = Verdict.MET
    return GoalResult(
        goal=goal,
        verdict=verdict,
        on_a_busy_machine=any(row.is_noisy for row, _ in covered),
        worst_ratio=min(ratios) if goal.at_least is not None else max(ratios),
        missed_by=missed,
        at_limit=at_limit,
    )


def _is_at_limit(row: Row, goal: Goal) -> bool:
    """Whether the goal is out of reach for the limit, which has nothing else to do, and the row is near to it."""
    if row.ratio_to_limit is None or row.ratio_of_limit is None:
        return False
    return row.ratio_to_limit.median >= MIN_SHARE_OF_LIMIT and not goal.is_met_by(row.ratio_of_limit.median)


def is_cold(compiling: Row) -> bool:
    """Whether Apache Kafka still compiled much when timing began, by the row that tells."""
    return (compiling.apache_kafka or 0.0) > WARM_COMPILING_SHARE
