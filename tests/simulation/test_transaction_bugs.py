"""The simulated transactions find bugs: each of those put in is found, and by a checker that is for it (ADR 8)."""

from typing import NamedTuple

import pytest

from quorate.kernel.ids import Offset
from tests.simulation.replication.cluster import ReplicatedCluster
from tests.simulation.replication.history import History, HistoryBroken
from tests.simulation.transactions.application import Application, LateCommits
from tests.simulation.transactions.findings import Checker
from tests.simulation.transactions.injected_bugs import BUGS
from tests.simulation.transactions.ledger import Ledger, Story
from tests.simulation.transactions.producer import FIRST, SECOND
from tests.simulation.transactions.run import MakeApplications, run_seed, usual_applications
from tests.simulation.transactions.verdict import ShownRecords, check_outcomes

_SEEDS_TO_TRY = 25


class _Search(NamedTuple):
    """With which faults drawn, from which seed on, and by which checkers a bug is to be found."""

    faults: tuple[str, ...]
    first_seed: int
    checkers: tuple[Checker, ...]
    applications: MakeApplications = usual_applications


def _with_late_commits(cluster: ReplicatedCluster, history: History, ledger: Ledger) -> list[Application]:
    late = LateCommits(cluster, history, ledger, "late", [FIRST, SECOND])
    return [*usual_applications(cluster, history, ledger), late]


_SEARCHES = {
    "a_commit_is_an_abort_elsewhere": _Search((), 1, (Checker.ATOMICITY,)),
    "a_new_coordinator_forgets_a_partition": _Search(
        ("lose_coordinator",), 1, (Checker.LIVENESS, Checker.ABORTED_READ, Checker.STABLE_OFFSET)
    ),
    "the_coordinator_does_not_look_at_epochs": _Search((), 2, (Checker.FENCING,)),
    "the_log_is_stable_up_to_the_watermark": _Search((), 1, (Checker.STABLE_OFFSET,)),
    "aborted_transactions_are_not_indexed": _Search((), 1, (Checker.ABORTED_READ,)),
    "a_late_end_ends_the_next_transaction": _Search(
        ("bad_client_links",), 11, (Checker.FENCING, Checker.REFUSAL, Checker.ATOMICITY, Checker.STABLE_OFFSET)
    ),
    "epochs_do_not_grow_with_transactions": _Search((), 1, (Checker.LIVENESS, Checker.REFUSAL)),
    "offsets_of_aborted_transactions_count": _Search((), 3, (Checker.ABORTED_READ,)),
    "a_marker_keeps_the_next_transaction_out": _Search(("slow_disk",), 4, (Checker.REFUSAL,)),
    "a_zombie_ends_what_its_successor_has_begun": _Search(
        ("slow_disk",), 268, (Checker.REFUSAL, Checker.STABLE_OFFSET)
    ),
    "a_zombie_is_given_the_epoch_of_its_successor": _Search((), 1, (Checker.FENCING,), _with_late_commits),
    "a_replaced_coordinator_answers_from_what_it_knows": _Search(
        ("isolate_from_peers",), 74, (Checker.REFUSAL, Checker.ATOMICITY)
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_put_in_is_found(name: str) -> None:
    search = _SEARCHES[name]
    with BUGS[name]():
        for seed in range(search.first_seed, search.first_seed + _SEEDS_TO_TRY):
            try:
                run_seed(seed, faults=search.faults, applications=search.applications)
            except AssertionError as found:
                if any(f"{checker}: " in str(found) for checker in search.checkers):
                    return
    pytest.fail(f"{name} was not found from seed {search.first_seed} on")


def test_where_nothing_is_wrong_late_commits_are_refused() -> None:
    run_seed(1, applications=_with_late_commits)


def _two_transactions() -> tuple[Ledger, Story, Story]:
    """Both committed, to two partitions each, with an offset of the group."""
    ledger = Ledger()
    incarnation = ledger.starts("payments", timeout_ms=1_000)
    incarnation.epoch, incarnation.acknowledged_at = 0, 0.0
    first, last = (_committed(ledger, ledger.begins(incarnation, number, now=float(number))) for number in (1, 2))
    return ledger, first, last


def _committed(ledger: Ledger, story: Story) -> Story:
    story.records = {partition: [b"%d/%d.0" % (story.number, partition)] for partition in (0, 1)}
    story.offset = Offset(story.number)
    for values in story.records.values():
        ledger.writes(story, values)
    story.commit.sent(story.began_at + 0.5)
    ledger.was_committed(story)
    return story


_ALL = {0: [b"1/0.0", b"2/0.0"], 1: [b"1/1.0", b"2/1.0"]}


def test_what_is_whole_passes() -> None:
    ledger, _, last = _two_transactions()

    check_outcomes(ledger, _ALL, {"payments": last.offset})


def test_a_committed_transaction_of_which_a_part_is_missing_is_found() -> None:
    ledger, _, last = _two_transactions()

    with pytest.raises(HistoryBroken, match="atomicity"):
        check_outcomes(ledger, _ALL | {1: [b"1/1.0"]}, {"payments": last.offset})


def test_one_whose_end_nobody_was_told_is_shown_wholly_or_not_at_all() -> None:
    ledger, first, last = _two_transactions()
    last.is_committed = None

    check_outcomes(ledger, _ALL, {"payments": last.offset})
    check_outcomes(ledger, {0: [b"1/0.0"], 1: [b"1/1.0"]}, {"payments": first.offset})
    with pytest.raises(HistoryBroken, match="atomicity"):
        check_outcomes(ledger, _ALL | {1: [b"1/1.0"]}, {"payments": last.offset})


def test_an_offset_that_does_not_come_with_its_records_is_found() -> None:
    ledger, first, _ = _two_transactions()

    with pytest.raises(HistoryBroken, match="atomicity"):
        check_outcomes(ledger, _ALL, {"payments": first.offset})


def test_records_out_of_their_order_are_found() -> None:
    ledger, _, _ = _two_transactions()
    shown = ShownRecords(ledger)
    shown.add(b"2/0.0", "here")

    with pytest.raises(HistoryBroken, match="order"):
        shown.add(b"1/0.0", "here")


def test_what_a_replaced_producer_still_commits_is_found() -> None:
    ledger, _, last = _two_transactions()
    successor = ledger.starts("payments", timeout_ms=1_000)
    successor.epoch, successor.acknowledged_at = 1, 2.4

    with pytest.raises(HistoryBroken, match="fencing"):
        check_outcomes(ledger, _ALL, {"payments": last.offset})
