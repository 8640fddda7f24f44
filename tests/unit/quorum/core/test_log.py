"""The log in memory: what it takes over, what it drops, and what it refuses to do."""

import pytest

from quorate.kernel.ids import NodeId, Offset, Term
from quorate.quorum.core.entries import Entry, EntryKind, InvariantBroken, Snapshot, SnapshotMeta
from quorate.quorum.core.log import RaftLog
from quorate.quorum.core.membership import Member, Membership, encode_membership

BOOTSTRAP = Membership.of([Member(NodeId(1), "", is_voter=True)])
OTHER = Membership.of([Member(NodeId(1), "", is_voter=True), Member(NodeId(2), "", is_voter=False)])


def entries(*terms: int, start: int = 0) -> list[Entry]:
    return [Entry(Offset(start + i), Term(term), EntryKind.COMMAND, b"x") for i, term in enumerate(terms)]


def log_of(*terms: int) -> RaftLog:
    return RaftLog(None, entries(*terms), BOOTSTRAP)


def snapshot_at(end_offset: int, last_term: int) -> Snapshot:
    return Snapshot(SnapshotMeta(Offset(end_offset), Term(last_term), OTHER), b"state")


def terms_of(log: RaftLog) -> list[int]:
    return [entry.term for entry in log.read(log.start_offset, log.log_end_offset)]


@pytest.mark.parametrize(
    ("offered", "start", "terms", "truncated_at", "unsaved_from"),
    [
        ([], 3, [1, 1, 2], None, 3),
        ([1, 2], 1, [1, 1, 2], None, 3),  # A repeated append changes nothing.
        ([1], 1, [1, 1, 2], None, 3),  # Nor does an old one: it must not truncate what came after it.
        ([3], 3, [1, 1, 2, 3], None, 3),
        ([3, 3], 1, [1, 3, 3], 1, 1),
        ([1, 3], 1, [1, 1, 3], 2, 2),
    ],
)
def test_entries_of_a_leader_replace_only_what_differs(
    offered: list[int], start: int, terms: list[int], truncated_at: int | None, unsaved_from: int
) -> None:
    log = log_of(1, 1, 2)

    assert log.merge(entries(*offered, start=start)) == truncated_at
    assert terms_of(log) == terms
    assert log.unsaved_from == unsaved_from


@pytest.mark.parametrize(
    ("term", "end_offset", "expected"),
    [(2, 6, 4), (1, 6, 2), (3, 6, 6), (2, 3, 3), (2, 99, 4), (0, 6, 0)],
)
def test_a_conflict_skips_whole_terms(term: int, end_offset: int, expected: int) -> None:
    assert log_of(1, 1, 2, 2, 3, 3).end_of_terms_up_to(Term(term), Offset(end_offset)) == expected


def test_a_conflict_with_the_entry_before_the_start_leads_below_the_start() -> None:
    log = RaftLog(snapshot_at(5, last_term=3), entries(3, start=5), BOOTSTRAP)

    assert log.end_of_terms_up_to(Term(3), Offset(6)) == 6
    assert log.end_of_terms_up_to(Term(2), Offset(6)) == 4


@pytest.mark.parametrize(
    ("log_end_offset", "last_term", "expected"),
    [(3, 2, True), (4, 2, True), (2, 2, False), (1, 3, True), (9, 1, False)],
)
def test_the_later_last_term_decides_before_the_length(log_end_offset: int, last_term: int, expected: bool) -> None:
    assert log_of(1, 1, 2).is_at_least(Offset(log_end_offset), Term(last_term)) is expected


@pytest.mark.parametrize(("max_bytes", "count"), [(0, 1), (1, 1), (2, 2), (100, 3)])
def test_a_read_is_bounded_by_bytes_but_never_empty(max_bytes: int, count: int) -> None:
    assert len(log_of(1, 1, 1, 1).read_up_to(Offset(1), max_bytes)) == count


def test_a_membership_holds_from_its_append_and_ends_with_its_truncation() -> None:
    log = log_of(1)
    log.append(Term(1), EntryKind.MEMBERSHIP, encode_membership(OTHER))
    assert log.membership == OTHER
    assert log.has_uncommitted_membership

    log.merge(entries(2, start=1))

    assert log.membership == BOOTSTRAP
    assert not log.has_uncommitted_membership


def test_a_compaction_keeps_some_entries_behind_the_snapshot() -> None:
    log = log_of(1, 1, 2, 2, 3)
    log.advance_high_watermark(Offset(4))
    meta = log.snapshot_meta(Offset(4))
    assert meta == SnapshotMeta(Offset(4), Term(2), BOOTSTRAP)

    log.compact(Snapshot(meta, b""), entries_kept=1)

    assert (log.start_offset, terms_of(log)) == (3, [2, 3])
    assert [log.term_before(Offset(offset)) for offset in range(2, 7)] == [None, 2, 2, 3, None]


def test_a_restart_takes_the_snapshot_and_the_entries_after_it() -> None:
    log = RaftLog(snapshot_at(2, last_term=1), entries(1, 1, 2, 2), BOOTSTRAP)

    assert (log.start_offset, log.high_watermark, log.log_end_offset) == (2, 2, 4)
    assert log.membership == OTHER


def test_an_installed_snapshot_takes_the_place_of_the_log() -> None:
    log = log_of(1, 1, 1)

    log.restore(snapshot_at(2, last_term=2))

    assert (log.start_offset, log.log_end_offset, log.high_watermark, log.last_term) == (2, 2, 2, 2)
    assert log.membership == OTHER


def committed_log() -> RaftLog:
    log = log_of(1, 1, 2)
    log.advance_high_watermark(Offset(2))
    return log


def test_committed_entries_are_never_truncated() -> None:
    with pytest.raises(InvariantBroken, match="below the high watermark"):
        committed_log().merge(entries(3, start=1))


def test_the_high_watermark_never_moves_back() -> None:
    with pytest.raises(InvariantBroken, match="move back"):
        committed_log().advance_high_watermark(Offset(1))


def test_nothing_is_committed_beyond_the_log() -> None:
    with pytest.raises(InvariantBroken, match="the log ends"):
        committed_log().advance_high_watermark(Offset(4))


def test_a_snapshot_never_undoes_committed_entries() -> None:
    with pytest.raises(InvariantBroken, match="undo"):
        committed_log().restore(snapshot_at(2, last_term=1))


def test_a_snapshot_of_another_history_is_refused() -> None:
    with pytest.raises(InvariantBroken, match="not one of this log"):
        committed_log().compact(snapshot_at(2, last_term=9), entries_kept=0)


def test_there_is_no_snapshot_of_uncommitted_entries() -> None:
    with pytest.raises(InvariantBroken, match="committed"):
        committed_log().snapshot_meta(Offset(3))


@pytest.mark.parametrize("wrong", [entries(1, start=4), entries(1, start=3)], ids=["a hole", "an older term"])
def test_offsets_are_dense_and_terms_do_not_fall(wrong: list[Entry]) -> None:
    with pytest.raises(InvariantBroken, match="cannot follow"):
        log_of(1, 1, 2).merge(wrong)
