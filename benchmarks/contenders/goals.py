"""What the backup, the restore and the data source are held to beside their contenders: one table. Pure."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from benchmarks.contenders.names import ContenderName
from benchmarks.contenders.summary import Comparison, ContenderGoal
from benchmarks.summary import Ratio, Verdict


class Measure(StrEnum):
    WALL = "wall time"
    CPU = "per CPU second"

    def of(self, comparison: Comparison) -> Ratio:
        return comparison.wall if self is Measure.WALL else comparison.cpu


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """A ratio that Quorate must reach against a contender, in every case whose name begins with one of the words."""

    cases: tuple[str, ...]
    against: tuple[ContenderName, ...]
    measure: Measure
    at_least: float
    ours: tuple[ContenderName, ...] = (ContenderName.QUORATE,)

    @property
    def text(self) -> str:
        against = " and ".join(f"the {name}" for name in self.against)
        return f"{', '.join(self.cases)}: {self.measure}, against {against}: >= {self.at_least:g}"

    def covers(self, comparison: Comparison) -> bool:
        return (
            comparison.case.startswith(self.cases)
            and comparison.contender in self.against
            and comparison.ours in self.ours
        )


_USUAL_BACKUPS: Final = ("backup-lz4", "backup-uncompressed")
_EITHER: Final = (ContenderName.QUORATE, ContenderName.QUORATE_ZSTD)
_LIMIT: Final = (ContenderName.LIMIT,)
_HASHED_LIMIT: Final = (ContenderName.HASHED_LIMIT,)
_KAFKA_BACKUP: Final = (ContenderName.KAFKA_BACKUP,)
_CONSUMERS: Final = (ContenderName.CONSUMER_LOOP, ContenderName.CONNECTOR)
_PRODUCERS: Final = (ContenderName.PRODUCER_LOOP, ContenderName.CONNECTOR)


def _small_batches(case: str, at_least: float) -> Goal:
    return Goal(cases=(case,), against=(ContenderName.CONSUMER_LOOP,), measure=Measure.CPU, at_least=at_least)


BACKUP_GOALS: Final = (
    Goal(cases=_USUAL_BACKUPS, ours=_EITHER, against=_CONSUMERS, measure=Measure.WALL, at_least=5),
    Goal(cases=_USUAL_BACKUPS, ours=_EITHER, against=_CONSUMERS, measure=Measure.CPU, at_least=5),
    Goal(cases=_USUAL_BACKUPS, against=_LIMIT, measure=Measure.WALL, at_least=0.6),
    Goal(cases=_USUAL_BACKUPS, against=_LIMIT, measure=Measure.CPU, at_least=0.6),
    Goal(cases=_USUAL_BACKUPS, against=_HASHED_LIMIT, measure=Measure.WALL, at_least=0.8),
    _small_batches("backup-1rec", 2),
    _small_batches("backup-20rec", 4),
    _small_batches("backup-320rec", 5),
    Goal(cases=_USUAL_BACKUPS, against=_KAFKA_BACKUP, measure=Measure.WALL, at_least=3),
    Goal(cases=_USUAL_BACKUPS, against=_KAFKA_BACKUP, measure=Measure.CPU, at_least=3),
)

_USUAL_RESTORES: Final = tuple(
    f"restore-{target}-{name}" for target in ("cluster", "sink") for name in ("lz4", "uncompressed")
)
RESTORE_GOALS: Final = (
    Goal(cases=_USUAL_RESTORES, ours=_EITHER, against=_PRODUCERS, measure=Measure.WALL, at_least=3),
    Goal(cases=_USUAL_RESTORES, against=_LIMIT, measure=Measure.WALL, at_least=0.6),
    Goal(cases=_USUAL_RESTORES, against=_HASHED_LIMIT, measure=Measure.WALL, at_least=0.8),
    Goal(
        cases=("restore-cluster-lz4",),
        against=(ContenderName.PRODUCER_LOOP,),
        measure=Measure.WALL,
        at_least=3,
    ),
    Goal(
        cases=("restore-cluster-uncompressed",),
        against=(ContenderName.PRODUCER_LOOP,),
        measure=Measure.WALL,
        at_least=2.2,
    ),
    Goal(cases=_USUAL_RESTORES, against=_KAFKA_BACKUP, measure=Measure.WALL, at_least=3),
)

_USUAL_READS: Final = ("data-source-lz4", "data-source-uncompressed")
DATA_SOURCE_GOALS: Final = (
    Goal(cases=_USUAL_READS, against=(ContenderName.CONNECTOR,), measure=Measure.CPU, at_least=3),
    Goal(cases=_USUAL_READS, against=_LIMIT, measure=Measure.WALL, at_least=0.85),
)


def judge_all(goals: Sequence[Goal], comparisons: Sequence[Comparison]) -> list[ContenderGoal]:
    return [
        judged(each.text, _outcomes([one for one in comparisons if each.covers(one)], each.measure.of, each.at_least))
        for each in goals
    ]


def judged(text: str, outcomes: Mapping[str, bool]) -> ContenderGoal:
    """Met where all are; otherwise the figures are those that miss."""
    if not outcomes:
        return ContenderGoal(text=text, verdict=Verdict.NOT_MEASURED)
    missed = tuple(figure for figure, is_met in outcomes.items() if not is_met)
    if missed:
        return ContenderGoal(text=text, verdict=Verdict.MISSED, figures=missed)
    return ContenderGoal(text=text, verdict=Verdict.MET, figures=tuple(outcomes))


def _outcomes(
    comparisons: Sequence[Comparison], ratio: Callable[[Comparison], Ratio], at_least: float
) -> dict[str, bool]:
    return {
        f"{each.case}, {each.ours} against {each.contender}: {ratio(each).median:.2f}": ratio(each).median >= at_least
        for each in comparisons
    }
