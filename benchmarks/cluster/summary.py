"""From samples and rounds to figures and verdicts: percentiles of the failover, and which goals are met. Pure."""

import math
from collections.abc import Iterable, Sequence

import msgspec

from benchmarks.cluster import cases
from benchmarks.cluster.cases import Client, Fault
from benchmarks.cluster.failover import Round
from benchmarks.summary import GoalResult, Row, Verdict, judge
from benchmarks.systems import QuorateSystem

CLUSTER = "the cluster alone"


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds. A percentile is the time of a round, not a value between two: of few rounds, p99 is the longest."""

    p50: float
    p99: float
    longest: float


class FailoverRow(msgspec.Struct, frozen=True, kw_only=True):
    system: str
    fault: Fault
    # A client's name, or that of the cluster's own share.
    writer: str
    rounds: int
    # Rounds in which nothing was acknowledged within the limit; the times are those of the others.
    without: int
    times: Times | None
    # The median of what this writer took longer than the cluster, round by round.
    own_waiting_ms: float | None = None
    failed_records: int = 0


class ClusterGoal(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    verdict: Verdict
    figures: tuple[str, ...] = ()


def summarise_failover(rounds: Sequence[Round]) -> list[FailoverRow]:
    groups: dict[tuple[Fault, str], list[Round]] = {}
    for each in rounds:
        groups.setdefault((each.fault, each.system), []).append(each)
    faults = list(Fault)
    ordered = sorted(groups.items(), key=lambda item: faults.index(item[0][0]))
    return [row for (_, _), group in ordered for row in _failover_rows(group)]


def judge_cluster(rows: Sequence[Row], failover: Sequence[FailoverRow]) -> list[ClusterGoal]:
    return [
        *(_ratio_goal(result) for result in judge(rows, cases.RATIO_GOALS)),
        _at_most(f"{cases.START}: < {cases.MAX_START_S} s", _quorate(rows, cases.START), cases.MAX_START_S, "s"),
        _at_most(
            f"{cases.START_IN_PROCESS}: < {cases.MAX_START_IN_PROCESS_S} s",
            _quorate(rows, cases.START_IN_PROCESS),
            cases.MAX_START_IN_PROCESS_S,
            "s",
        ),
        _at_most(
            f"idle CPU of a node: < {cases.MAX_IDLE_CPU_SHARE:.0%} of a core",
            _quorate(rows, cases.IDLE_CPU),
            cases.MAX_IDLE_CPU_SHARE,
            "of a core",
        ),
        _idle_growth_goal(rows),
        _failover_goal(
            f"a killed process, p99 of each client: < {cases.MAX_KILLED_P99_MS:.0f} ms",
            [row for row in failover if row.fault.kills and row.writer in list(Client)],
            cases.MAX_KILLED_P99_MS,
        ),
        _failover_goal(
            f"a frozen or cut-off node, the cluster's share: <= {cases.MAX_SILENT_MS:.0f} ms",
            [row for row in failover if not row.fault.kills and row.writer == CLUSTER],
            cases.MAX_SILENT_MS,
        ),
    ]


def times_of(values_ms: Iterable[float]) -> Times | None:
    ordered = sorted(values_ms)
    if not ordered:
        return None
    return Times(p50=_nearest_rank(ordered, 0.5), p99=_nearest_rank(ordered, 0.99), longest=ordered[-1])


def _nearest_rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _failover_rows(group: Sequence[Round]) -> list[FailoverRow]:
    first = group[0]
    rows = [
        FailoverRow(
            system=first.system,
            fault=first.fault,
            writer=CLUSTER,
            rounds=len(group),
            without=0,
            times=times_of(each.server_ms for each in group),
        )
    ]
    for client in first.client_ms:
        taken = [(each.client_ms[client], each.server_ms) for each in group]
        own_ms = times_of(max(0.0, client_ms - server_ms) for client_ms, server_ms in taken if client_ms is not None)
        rows.append(
            FailoverRow(
                system=first.system,
                fault=first.fault,
                writer=client,
                rounds=len(group),
                without=sum(client_ms is None for client_ms, _ in taken),
                times=times_of(client_ms for client_ms, _ in taken if client_ms is not None),
                own_waiting_ms=own_ms.p50 if own_ms else None,
                failed_records=sum(each.failed_records[client] for each in group),
            )
        )
    return rows


def _quorate(rows: Sequence[Row], measure: str) -> float | None:
    return next((row.quorate for row in rows if row.measure == measure), None)


def _ratio_goal(result: GoalResult) -> ClusterGoal:
    worst = () if result.worst_ratio is None else (f"worst {result.worst_ratio:.2f}",)
    return ClusterGoal(text=result.goal.text, verdict=result.verdict, figures=worst + result.missed_by)


def _at_most(text: str, value: float | None, limit: float, unit: str) -> ClusterGoal:
    if value is None:
        return ClusterGoal(text=text, verdict=Verdict.NOT_MEASURED)
    verdict = Verdict.MET if value < limit else Verdict.MISSED
    return ClusterGoal(text=text, verdict=verdict, figures=(f"{value:.3g} {unit}",))


def _idle_growth_goal(rows: Sequence[Row]) -> ClusterGoal:
    before, after = _quorate(rows, cases.IDLE_CPU_WITHOUT_TOPICS), _quorate(rows, cases.IDLE_CPU)
    growth = None if before is None or after is None else max(0.0, after - before)
    return _at_most(
        f"idle CPU with all topics over that with none: < {cases.MAX_IDLE_CPU_GROWTH:.1%} of a core",
        growth,
        cases.MAX_IDLE_CPU_GROWTH,
        "of a core",
    )


def _failover_goal(text: str, rows: Sequence[FailoverRow], limit_ms: float) -> ClusterGoal:
    ours = [row for row in rows if row.system == QuorateSystem.name]
    if not ours:
        return ClusterGoal(text=text, verdict=Verdict.NOT_MEASURED)
    missed = tuple(
        f"{row.fault}, {row.writer}: {f'{row.times.p99:,.0f} ms' if row.times else 'never'}"
        for row in ours
        if row.without or row.times is None or row.times.p99 > limit_ms
    )
    return ClusterGoal(text=text, verdict=Verdict.MISSED if missed else Verdict.MET, figures=missed)
