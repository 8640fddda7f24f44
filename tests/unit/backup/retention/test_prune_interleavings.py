"""Several commands on one backup at once, their storage calls interleaved by chance, some killed on their way."""

import contextlib
import os
import random
import threading
from collections.abc import Callable
from functools import cache

import pytest

from quorate.backup.errors import BackupError
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.delta import ManifestDelta
from quorate.backup.manifests.document import decode_document
from quorate.backup.manifests.manifest import Manifest, Mode
from quorate.backup.objects.names import PRUNED_CONTENT, checkpoint_name, manifest_name, manifest_number
from tests.unit.backup.backup_runs import BACKUP_ID
from tests.unit.backup.memory_storage import MemoryStorage
from tests.unit.backup.retained_backups import Calls, Killed, RetainedBackup, layered

IS_HEAVY = bool(os.environ.get("QUORATE_HEAVY"))
SCHEDULES = 3000 if IS_HEAVY else 80
STEP_TIMEOUT_S = 60  # A guard against hangs.

Act = Callable[[RetainedBackup], object]

ACTS: dict[str, Act] = {
    "increments": lambda backup: backup.grow(2),
    "snapshots": lambda backup: backup.grow(2, Mode.SNAPSHOT),
    "compaction": lambda backup: backup.compact(),
    "keep one": lambda backup: backup.prune(keep_last=1),
    "keep two": lambda backup: backup.prune(keep_last=2),
    "delete all": lambda backup: backup.prune(drops_all=True),
    "hold": lambda backup: backup.hold(2),
    "restore": lambda backup: backup.begin_restore(3),
}


class Turn(Calls):
    """The calls of one command: each waits until it is let through."""

    def __init__(self) -> None:
        super().__init__()
        self._may_go = threading.Semaphore(0)
        self.waits = threading.Semaphore(0)  # Released when the command has come to its next call, or to its end.
        self.is_done = False

    def call(self, effect: Callable[[], object]) -> None:
        self.waits.release()
        assert self._may_go.acquire(timeout=STEP_TIMEOUT_S)
        super().call(effect)

    def let_through(self) -> None:
        self._may_go.release()
        assert self.waits.acquire(timeout=STEP_TIMEOUT_S)

    def begin(self, backup: RetainedBackup, act: Act) -> threading.Thread:
        def run() -> None:
            try:
                act(backup)
            except (BackupError, Killed):
                pass  # Refused with a sentence, or gone.
            finally:
                self.is_done = True
                self.waits.release()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert self.waits.acquire(timeout=STEP_TIMEOUT_S)
        return thread


def interleave(backup: RetainedBackup, names: list[str], chance: random.Random) -> list[RetainedBackup]:
    """Run the commands to their ends; what they see of the storage is one and the same."""
    turns = [Turn() for _ in names]
    views = [backup.view(turn, "abcd"[index]) for index, turn in enumerate(turns)]
    threads = [turn.begin(view, ACTS[name]) for turn, view, name in zip(turns, views, names, strict=True)]
    while open_turns := [turn for turn in turns if not turn.is_done]:
        turn = chance.choice(open_turns)
        for _ in range(chance.choice((1, 1, 2, 5, 20))):
            turn.is_dead = turn.is_dead or chance.random() < 0.003
            turn.let_through()
            assert_names_are_there(backup)
            if turn.is_done:
                break
    for thread in threads:
        thread.join(STEP_TIMEOUT_S)
    return views


def assert_names_are_there(backup: RetainedBackup) -> None:
    contents = backup.storage.contents
    for name in list(contents):
        number = manifest_number(name)
        if number is not None and contents[name] != PRUNED_CONTENT:
            missing = names_in(contents, number) - contents.keys()
            assert not missing, f"manifest {number} names {missing}, which is not there"


_names: dict[tuple[bytes, ...], frozenset[str]] = {}  # By all that a manifest is read from.


def names_in(contents: dict[str, bytes], number: int) -> frozenset[str]:
    """What the manifest names; fails where it cannot be read."""
    read = [contents[manifest_name(number)]]
    while isinstance(stored := decoded(read[-1]), ManifestDelta) and not stored.layers:
        below = contents.get(manifest_name(stored.base_number), PRUNED_CONTENT)
        read.append(contents[checkpoint_name(stored.number)] if below == PRUNED_CONTENT else below)
    if tuple(read) not in _names:
        storage = MemoryStorage()
        storage.contents = contents
        _names[tuple(read)] = frozenset(ManifestCatalog(storage, BACKUP_ID).read(number).object_names())
    return _names[tuple(read)]


@cache
def decoded(content: bytes) -> Manifest | ManifestDelta:
    return decode_document(content, "")


@cache
def history(kind: str) -> RetainedBackup:
    backup = RetainedBackup()
    backup.grow(6 if kind == "on layers" else 0)
    backup.grow(2)
    backup.grow(1, Mode.SNAPSHOT)
    backup.grow(1)
    return backup


@pytest.mark.parametrize("kind", ["whole", "on layers"])
@pytest.mark.parametrize("share", range(4))
def test_at_no_moment_does_a_manifest_name_what_is_not_there(share: int, kind: str) -> None:
    with layered(1) if kind == "on layers" else contextlib.nullcontext():
        try_schedules(share, kind)


def try_schedules(share: int, kind: str) -> None:
    for seed in range(share, SCHEDULES, 4):
        chance = random.Random(seed)
        backup = history(kind).copy()
        names = chance.choices(list(ACTS), k=chance.choice((2, 2, 3, 4)))

        views = interleave(backup, names, chance)

        for view in views:
            backup.held |= view.held
            backup.reading |= view.reading
        try:
            backup.assert_whole()
            for each in backup.restores.unfinished():  # Those of killed commands, too.
                backup.restores.put_abandoned(each)
            backup.reading.clear()
            backup.prune(keep_last=1)
            backup.assert_whole()
            assert backup.begun() <= {max(backup.manifests(), default=0)}
        except BaseException as error:
            error.add_note(f"seed {seed}: {names}")
            raise
