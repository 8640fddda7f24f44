"""Random lives of a backup: runs, compactions, prunes, holds and restores, each of which may be killed at any call."""

import contextlib
import os
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from quorate.backup.errors import BackupError
from quorate.backup.manifests.manifest import Mode
from quorate.backup.retention.orphans import find_orphans
from tests.unit.backup.retained_backups import DAY_MS, Killed, RetainedBackup, layered

IS_HEAVY = bool(os.environ.get("QUORATE_HEAVY"))

NUMBERS = st.integers(1, 12)
STEPS = st.one_of(
    st.tuples(st.just("append"), NUMBERS),
    st.tuples(st.just("truncate"), NUMBERS),
    st.tuples(st.just("backup"), NUMBERS),
    st.tuples(st.just("backup"), NUMBERS),
    st.tuples(st.just("snapshot"), NUMBERS),
    st.tuples(st.just("compact"), NUMBERS),
    st.tuples(st.just("keep last"), st.integers(1, 3)),
    st.tuples(st.just("keep days"), st.integers(0, 2)),
    st.tuples(st.just("hold"), NUMBERS),
    st.tuples(st.just("release"), NUMBERS),
    st.tuples(st.just("restore"), NUMBERS),
    st.tuples(st.just("restores done"), NUMBERS),
    st.tuples(st.just("forget marks"), NUMBERS),
    st.tuples(st.just("delete all"), st.just(1)),
)
KILLS = st.one_of(st.none(), st.none(), st.tuples(st.integers(1, 60), st.booleans()))


TAKE: dict[str, Callable[[RetainedBackup, int], object]] = {
    "append": lambda backup, count: backup.log.append(count),
    "truncate": lambda backup, offset: backup.log.elect_unclean(offset),
    "backup": lambda backup, _: backup.back_up(),
    "snapshot": lambda backup, _: backup.back_up(Mode.SNAPSHOT),
    "compact": lambda backup, _: backup.compact(),
    "keep last": lambda backup, count: backup.prune(keep_last=count),
    "keep days": lambda backup, days: backup.prune(keep_days=days, now_ms=DAY_MS),
    "hold": lambda backup, number: backup.hold(number),
    "release": lambda backup, number: backup.release(number),
    "restore": lambda backup, number: backup.begin_restore(number),
    "restores done": lambda backup, _: backup.end_restores(),
    "forget marks": lambda backup, _: backup.forget_marks(),
    "delete all": lambda backup, _: backup.prune(drops_all=True),
}

STORED = pytest.mark.parametrize("stored", [contextlib.nullcontext(), layered(1)], ids=["whole", "on layers"])


@STORED
@settings(max_examples=2000 if IS_HEAVY else 60, deadline=None)
@example([(("backup", 1), None), (("backup", 1), None), (("restore", 1), (4, False))])
@given(st.lists(st.tuples(STEPS, KILLS), max_size=30))
def test_no_manifest_that_is_left_ever_lacks_an_object_and_a_last_prune_leaves_nothing_behind(
    stored: contextlib.AbstractContextManager[object], steps: list[tuple[tuple[str, int], tuple[int, bool] | None]]
) -> None:
    with stored:
        live(steps)


def live(steps: list[tuple[tuple[str, int], tuple[int, bool] | None]]) -> None:
    backup = RetainedBackup()
    told: dict[int, list[bytes]] = {}  # What each manifest said when it was first seen.
    newest = 0
    for (step, number), kill in steps:
        held = set(backup.holds.holds())
        if kill is not None:
            backup.calls.kill_at(kill[0], is_late=kill[1])
        with contextlib.suppress(BackupError, Killed):
            TAKE[step](backup, number)
        backup.calls.revive()

        backup.assert_whole()
        said = backup.everything()
        for manifest, batches in said.items():
            assert batches == told.setdefault(manifest, batches)
        if step != "release":
            assert held <= said.keys()
        if step == "delete all":
            newest = 0
        assert newest <= max(said, default=0), "the newest manifest went unasked"
        newest = max(said, default=0)

    backup.end_restores()
    for restore_id in backup.restores.unfinished():
        backup.restores.put_abandoned(restore_id)  # Killed between its plan and its first look at that.
    if backup.catalog.numbers():
        backup.prune(keep_last=1)
    for orphan in find_orphans(backup.storage.objects(), backup.catalog.history()):
        # Those of killed runs; what a prune left behind it would have deleted itself: see the test below.
        backup.storage.delete(orphan.name)
    backup.assert_whole()
    kept = set(backup.holds.holds()) | {max(backup.manifests(), default=0)}
    assert backup.manifests().keys() <= kept


@STORED
@settings(max_examples=1000 if IS_HEAVY else 60, deadline=None)
@given(
    st.lists(STEPS, min_size=3, max_size=20),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 120), st.booleans()), min_size=1, max_size=4),
)
def test_prunes_that_are_killed_leave_no_orphan_behind_the_one_that_is_not(
    stored: contextlib.AbstractContextManager[object],
    steps: list[tuple[str, int]],
    kills: list[tuple[int, int, bool]],
) -> None:
    with stored:
        kill_prunes(steps, kills)


def kill_prunes(steps: list[tuple[str, int]], kills: list[tuple[int, int, bool]]) -> None:
    backup = RetainedBackup()
    for step, number in steps:
        with contextlib.suppress(BackupError):
            TAKE[step](backup, number)
    lost_runs = backup.orphans()  # Of runs that were refused.
    for keep_last, call, is_late in kills:
        backup.calls.kill_at(call, is_late=is_late)
        with contextlib.suppress(BackupError, Killed):
            backup.prune(keep_last=keep_last)
        backup.calls.revive()
        backup.assert_whole()

    backup.prune(keep_last=3)

    backup.assert_whole()
    assert backup.orphans() == lost_runs
    assert backup.begun() <= {*backup.reading.values(), max(backup.manifests(), default=0)}
