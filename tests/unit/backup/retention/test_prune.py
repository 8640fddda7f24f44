"""Prunes that are killed, refused and overtaken: no manifest that is left names an object that is not there."""

import itertools
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from quorate.backup.errors import BackupError, CommitConflict, ConfigError, ManifestPruned, StorageError
from quorate.backup.manifests.manifest import Mode
from quorate.backup.manifests.merging import RangeResult
from quorate.backup.planning.planner import Plan
from quorate.backup.retention.prune import Pruner
from quorate.backup.retention.prune_policy import PrunePolicy
from tests.unit.backup.backup_runs import copy_all, read_back, run_backup
from tests.unit.backup.retained_backups import DAY_MS, Killed, QuietWatcher, RetainedBackup

Act = Callable[[RetainedBackup], object]


def history() -> RetainedBackup:
    """Manifests 1 to 6: two snapshots with increments behind each, compacted once."""
    return _history().copy()


@cache
def _history() -> RetainedBackup:
    backup = RetainedBackup()
    backup.grow(2)
    backup.log.elect_unclean(4)
    backup.grow(1)
    backup.grow(1, Mode.SNAPSHOT)
    backup.grow(1)
    backup.compact()
    assert list(backup.manifests()) == [1, 2, 3, 4, 5, 6]
    return backup


def keep_one(backup: RetainedBackup) -> object:
    return backup.prune(keep_last=1)


def test_the_last_manifests_stay_and_what_only_older_ones_name_goes() -> None:
    backup = RetainedBackup()
    backup.grow(3, Mode.SNAPSHOT)
    before = backup.everything()

    report = backup.prune(keep_last=2)

    assert report.pruned == [1]
    assert {verdict.number for verdict in report.kept} == {2, 3}
    assert backup.everything() == {2: before[2], 3: before[3]}
    assert backup.orphans() == set()
    assert report.objects > 0


def test_an_increment_keeps_the_objects_of_the_runs_before_it() -> None:
    backup = RetainedBackup()
    backup.grow(4)
    objects = {name for name in backup.storage.contents if name.startswith("topics/")}

    report = backup.prune(keep_last=1)

    assert (report.pruned, report.objects) == ([1, 2, 3], 0)
    assert {name for name in backup.storage.contents if name.startswith("topics/")} == objects
    assert read_back(backup.storage, backup.manifests()[4]) == [data for _, data in backup.log.batches]


def test_a_dry_run_says_what_would_go_and_changes_nothing() -> None:
    backup, twin = history(), history()
    before = dict(backup.storage.contents)
    pruner = Pruner(backup.storage, backup.catalog, backup.holds, backup.restores)
    dry = pruner.prune(PrunePolicy(keep_last=1), QuietWatcher(), now_ms=DAY_MS, is_dry=True)
    real = twin.prune(keep_last=1)

    assert backup.storage.contents == before
    assert backup.holds_storage.contents == {}
    assert (dry.pruned, dry.objects, dry.size_bytes) == (real.pruned, real.objects, real.size_bytes)


def test_a_prune_that_keeps_more_finishes_what_one_that_kept_less_has_begun() -> None:
    for call in itertools.count(1):
        backup = history()
        backup.calls.kill_at(call, is_late=True)
        with pytest.raises(Killed):
            keep_one(backup)
        backup.calls.revive()
        if begun := backup.begun():
            break
    assert begun <= backup.manifests().keys()

    report = backup.prune(keep_last=100)

    assert begun <= set(report.pruned)
    assert backup.begun() == set()
    assert backup.orphans() == set()


def test_the_next_run_goes_on_behind_a_prune() -> None:
    backup = history()
    keep_one(backup)
    backup.grow(1)

    assert list(backup.manifests()) == [6, 7]
    assert read_back(backup.storage, backup.manifests()[7]) == [data for _, data in backup.log.batches]


def test_a_pruned_manifest_says_so() -> None:
    backup = history()
    keep_one(backup)

    with pytest.raises(ManifestPruned, match="manifest 2 of backup nightly was pruned"):
        backup.catalog.read(2)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("policy", [{"keep_last": 1}, {"drops_all": True}], ids=str)
def test_killed_at_any_call_and_run_again_it_ends_as_if_it_had_not_been_killed(
    policy: dict[str, Any], is_late: bool
) -> None:
    expected = history()
    expected.prune(**policy)
    calls = expected.calls.count - history().calls.count
    for call in range(1, calls + 1):
        backup = history()
        backup.calls.kill_at(call, is_late=is_late)
        with pytest.raises(Killed):
            backup.prune(**policy)
        backup.calls.revive()
        backup.assert_whole()

        backup.prune(**policy)

        backup.assert_whole()
        assert backup.everything() == expected.everything(), call
        assert backup.orphans() == set(), call
        assert backup.holds_storage.contents == {}, call


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("every", [2, 3, 5, 7, 13])
def test_a_storage_that_fails_now_and_then_stops_it_and_it_ends_well_when_it_is_repeated(
    every: int, is_late: bool
) -> None:
    backup = history()
    for storage in (backup.storage, backup.holds_storage, backup.restores_storage):
        storage.fails_every, storage.fails_late = every, is_late
    for attempt in range(200):
        for storage in (backup.storage, backup.holds_storage, backup.restores_storage):
            storage.calls = attempt % every  # Else a prune of as many calls would always fail at the same ones.
        try:
            backup.prune(keep_last=1)
        except StorageError:
            backup.assert_whole()
            if attempt % 20 == 19:
                for storage in (backup.storage, backup.holds_storage, backup.restores_storage):
                    storage.fails_every = every + attempt
        else:
            break
    else:
        pytest.fail("it never came to its end")
    backup.assert_whole()
    assert list(backup.manifests()) == [6]
    assert backup.orphans() == set()


class Overtaken(NamedTuple):
    backup: RetainedBackup
    refusal: BackupError | None  # Of the act.


def overtaken(act: Act, event: Act) -> Iterator[Overtaken]:
    """Every way in which the event, whole, happens before a call of the act. Either may be refused, with a sentence."""
    for call in itertools.count(1):
        backup = history()
        events = _Once(backup, event)
        backup.calls.happens_at(call, events.happen)
        refusal = _try(backup, act)
        if not events.happened:
            return
        backup.assert_whole()
        yield Overtaken(backup, refusal)


class _Once:
    def __init__(self, backup: RetainedBackup, event: Act) -> None:
        self._backup = backup
        self._event = event
        self.happened = False

    def happen(self) -> None:
        self.happened = True
        _try(self._backup, self._event)


def _try(backup: RetainedBackup, act: Act) -> BackupError | None:
    try:
        act(backup)
    except BackupError as error:
        return error
    return None


def grow_and_keep_one(backup: RetainedBackup) -> None:
    backup.grow(2, Mode.SNAPSHOT)
    keep_one(backup)


ACTS: dict[str, Act] = {
    "backup": lambda backup: backup.grow(1),
    "two backups": lambda backup: backup.grow(2, Mode.SNAPSHOT),
    "compact": lambda backup: backup.compact(),
    "keep one": keep_one,
    "backup and keep one": grow_and_keep_one,
    "hold": lambda backup: backup.hold(3),
    "restore": lambda backup: backup.begin_restore(3),
    "delete all": lambda backup: backup.prune(drops_all=True),
}


@pytest.mark.parametrize("event", ACTS)
@pytest.mark.parametrize("act", ["backup", "keep one", "delete all", "restore", "hold"])
def test_whatever_happens_inside_of_anything_else_no_manifest_names_what_is_not_there(act: str, event: str) -> None:
    for backup, _ in overtaken(ACTS[act], ACTS[event]):
        backup.end_restores()
        backup.prune(keep_last=1)
        backup.assert_whole()
        # Where all were to go, the newest waits to be asked for again.
        assert backup.begun() <= {max(backup.manifests(), default=0)}


def test_a_run_that_began_on_a_manifest_which_is_gone_by_now_commits_nothing() -> None:
    ended = list(overtaken(ACTS["backup"], ACTS["backup and keep one"]))

    assert any(isinstance(refusal, CommitConflict) for _, refusal in ended)
    for backup, refusal in ended:
        assert max(backup.manifests()) == (8 if refusal else 9)


def test_a_run_that_began_before_marks_that_are_forgotten_by_now_commits_nothing() -> None:
    backup = history()
    copying = copy_all(backup.storage, backup.log, "late")

    def copy_slowly(plan: Plan) -> list[RangeResult]:
        grow_and_keep_one(backup)
        backup.forget_marks()
        return copying(plan)

    backup.log.append(3)
    with pytest.raises(CommitConflict, match="nothing of this run was committed"):
        run_backup(backup.storage, backup.log, "late", execute=copy_slowly)

    assert list(backup.manifests()) == [8]
    backup.assert_whole()


def test_an_unfinished_restore_keeps_its_manifest_and_it_goes_when_the_restore_is_done() -> None:
    backup = history()
    backup.begin_restore(2)

    report = backup.prune(keep_last=1)
    assert [verdict.number for verdict in report.kept] == [2, 6]
    assert "not done" in str(report.kept[0].kept_because)
    backup.assert_whole()

    backup.end_restores()
    assert backup.prune(keep_last=1).pruned == [2]
    assert backup.orphans() == set()


def test_the_whole_backup_goes_only_when_it_is_asked_for_and_nothing_holds_it() -> None:
    backup = history()
    backup.hold(3)
    with pytest.raises(BackupError, match="manifest 3 of backup nightly is held: nothing was deleted"):
        backup.prune(drops_all=True)
    assert len(backup.manifests()) == 6
    backup.release(3)

    report = backup.prune(drops_all=True)

    assert report.pruned == [1, 2, 3, 4, 5, 6]
    assert backup.manifests() == {}
    assert backup.orphans() == set()
    backup.grow(1)
    assert len(backup.manifests()) == 1
    assert min(backup.manifests()) > 7  # The number of no deleted manifest is given again.


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ({}, "say what to keep"),
        ({"keep_last": 0}, "keeps nothing"),
        ({"keep_last": 1, "drops_all": True}, "cannot stand beside"),
        ({"keep_days": -1}, "not a number of days"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(policy: dict[str, Any], sentence: str) -> None:
    backup = history()
    before = dict(backup.storage.contents)

    with pytest.raises(ConfigError, match=sentence):
        backup.prune(**policy)

    assert backup.storage.contents == before


def test_a_damaged_manifest_stops_it_before_anything_is_deleted() -> None:
    backup = history()
    backup.storage.contents["manifests/000002.json"] = b"{}"
    before = dict(backup.storage.contents)

    with pytest.raises(BackupError, match="000002"):
        keep_one(backup)

    assert backup.storage.contents == before


def test_marks_below_the_oldest_manifest_go_when_they_are_old_enough() -> None:
    backup = history()
    backup.hold(3)
    keep_one(backup)
    pruner = Pruner(backup.storage, backup.catalog, backup.holds, backup.restores)

    pruner.forget_marks(now_ms=999, safe_age_ms=1000)
    assert [mark.number for mark in backup.catalog.marks()] == [1, 2, 4, 5]
    pruner.forget_marks(now_ms=1000, safe_age_ms=1000)

    assert backup.catalog.marks() == []
    assert backup.catalog.pruned_ranges() == [range(4, 6)], "what is missing between 3 and 6 was not lost"
    assert backup.catalog.numbers() == [3, 6]
