"""Percentiles and verdicts of the cluster's benchmark: never better than what was measured."""

from benchmarks.cases import Unit
from benchmarks.cluster import cases
from benchmarks.cluster.cases import Client, Fault
from benchmarks.cluster.failover import Round
from benchmarks.cluster.summary import CLUSTER, ClusterGoal, judge_cluster, summarise_failover, times_of
from benchmarks.samples import Sample
from benchmarks.summary import Verdict, summarise
from benchmarks.systems import Durability

KILLED, FROZEN, IDLE, GROWTH = "a killed process", "a frozen or cut-off node", "idle CPU of a node", "idle CPU with all"


def round_of(
    fault: Fault, *, server_ms: float = 50.0, client_ms: float | None = 100.0, system: str = "Quorate"
) -> Round:
    return Round(
        system=system,
        fault=fault,
        new_leader_ms=server_ms,
        server_ms=server_ms,
        client_ms={Client.JAVA: client_ms},
        failed_records={Client.JAVA: 0},
    )


def idle(measure: str, share: float) -> Sample:
    return Sample(
        measure=measure, durability=Durability.FSYNC, system="Quorate", unit=Unit.CORE_SHARE, value=share, seconds=1.0
    )


def goal(text: str, goals: list[ClusterGoal]) -> ClusterGoal:
    return next(each for each in goals if each.text.startswith(text))


def verdict_of_rounds(text: str, *rounds: Round) -> ClusterGoal:
    return goal(text, judge_cluster([], summarise_failover(rounds)))


def test_p99_of_fifty_rounds_is_the_longest_of_them() -> None:
    times = times_of([*range(49), 1000.0])

    assert times is not None
    assert (times.p50, times.p99, times.longest) == (24, 1000, 1000)


def test_one_slow_round_of_few_misses_the_goal_for_killed_processes() -> None:
    fast = [round_of(Fault.KILL_LEADER, client_ms=100.0)] * 9

    assert verdict_of_rounds(KILLED, *fast).verdict is Verdict.MET
    assert verdict_of_rounds(KILLED, *fast, round_of(Fault.KILL_LEADER, client_ms=251.0)).verdict is Verdict.MISSED


def test_client_that_never_wrote_again_misses_the_goal_although_it_has_no_time() -> None:
    missed = verdict_of_rounds(KILLED, round_of(Fault.KILL_BOTH), round_of(Fault.KILL_BOTH, client_ms=None))

    assert missed.verdict is Verdict.MISSED


def test_frozen_node_is_judged_by_the_cluster_as_the_client_waits_for_its_own_timeout() -> None:
    silent = round_of(Fault.FREEZE_LEADER, server_ms=1900.0, client_ms=None)

    assert verdict_of_rounds(FROZEN, silent).verdict is Verdict.MET
    assert verdict_of_rounds(KILLED, silent).verdict is Verdict.NOT_MEASURED


def test_rounds_of_apache_kafka_do_not_decide_a_goal() -> None:
    slow = round_of(Fault.KILL_LEADER, client_ms=9000.0, system="Apache Kafka")

    assert verdict_of_rounds(KILLED, slow, round_of(Fault.KILL_LEADER)).verdict is Verdict.MET


def test_own_waiting_is_what_the_client_took_longer_than_the_cluster() -> None:
    cluster, java = summarise_failover([round_of(Fault.KILL_LEADER, server_ms=40.0, client_ms=190.0)])

    assert (cluster.writer, cluster.own_waiting_ms) == (CLUSTER, None)
    assert (java.writer, java.own_waiting_ms) == (Client.JAVA, 150.0)


def test_idle_cpu_that_grows_with_topics_misses_its_goal_below_the_limit_for_a_node() -> None:
    rows = summarise([idle(cases.IDLE_CPU_WITHOUT_TOPICS, 0.01), idle(cases.IDLE_CPU, 0.02)])

    goals = judge_cluster(rows, [])

    assert goal(IDLE, goals).verdict is Verdict.MET
    assert goal(GROWTH, goals).verdict is Verdict.MISSED
