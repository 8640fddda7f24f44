"""Drops manifests of a backup, and the objects that only they name. Does I/O; can be stopped anywhere and run again.

1. The decision to drop a manifest is stored, with the names of its objects. From then on it cannot be held, and no
   restore begins with it.
2. A manifest that stays and is stored as a delta on one that goes gets a checkpoint: what it is read from instead.
3. A mark takes the manifest's place. Now nobody reads it, and its number stays taken: a run that was planned on it
   cannot commit any more.
4. Objects are deleted that a dropped manifest names and none that is left does.
5. The decision is forgotten. Until then the next prune carries it out.

A run that commits meanwhile follows a manifest that is left, and names objects of that one and its own new ones: none
of them is deleted here.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import msgspec

from quorate.backup.errors import BackupError, ManifestPruned, ObjectExists
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.manifest import Manifest
from quorate.backup.objects.names import PRUNED_CONTENT, manifest_name, pruned_range_name
from quorate.backup.objects.storage import ObjectStorage
from quorate.backup.restore.ledger import RestoreLedger
from quorate.backup.retention.holds import DamagedDecision, Hold, HoldLedger, Pruning
from quorate.backup.retention.prune_policy import PrunePolicy, Verdict, age_of, check_forgotten, check_policy, decide

_REQUESTS_IN_FLIGHT = 16
_MAX_ROUNDS = 5

Item = TypeVar("Item")
Result = TypeVar("Result")


class PruneWatcher(Protocol):
    def deletes(self, count: int) -> None:
        """So many objects are about to be deleted."""
        ...

    def deleted(self, count: int) -> None: ...


class PrunePlan(msgspec.Struct, frozen=True, kw_only=True):
    verdicts: list[Verdict]
    objects: dict[int, dict[str, int]]  # Of each manifest that is dropped, those that only it is to delete.
    doomed: dict[str, int]  # What will be deleted, as it looks now.


class PruneReport(msgspec.Struct, frozen=True, kw_only=True):
    backup_id: str
    is_dry: bool
    pruned: list[int]
    kept: list[Verdict]
    objects: int
    size_bytes: int


class Pruner:
    """``storage`` is the backup's own folder."""

    def __init__(
        self,
        storage: ObjectStorage,
        catalog: ManifestCatalog,
        holds: HoldLedger,
        restores: RestoreLedger,
        *,
        requests_in_flight: int = _REQUESTS_IN_FLIGHT,
    ) -> None:
        self._storage = storage
        self._catalog = catalog
        self._holds = holds
        self._restores = restores
        self._requests_in_flight = requests_in_flight

    def prune(
        self,
        policy: PrunePolicy,
        watcher: PruneWatcher,
        *,
        now_ms: int,
        ignored_restores: Collection[str] = (),
        is_dry: bool = False,
    ) -> PruneReport:
        check_policy(policy)
        pruned: set[int] = set()
        deleted: dict[str, int] = {}
        for _ in range(_MAX_ROUNDS):
            plan = self._plan(policy, now_ms, ignored_restores)
            if policy.drops_all:
                self._require_free(plan, pruned)
            if is_dry:
                pruned, deleted = set(plan.objects), plan.doomed
                break
            pruned |= self._drop(plan, ignored_restores)
            deleted |= self._delete_objects(watcher)
            if not policy.drops_all or not self._catalog.numbers():
                break
        else:
            raise BackupError(f"backup {self._catalog.backup_id} is being written: stop its runs and delete it then")
        return PruneReport(
            backup_id=self._catalog.backup_id,
            is_dry=is_dry,
            pruned=sorted(pruned),
            kept=[_as_it_came(verdict) for verdict in plan.verdicts if verdict.number not in pruned],
            objects=len(deleted),
            size_bytes=sum(deleted.values()),
        )

    def forget_marks(self, *, now_ms: int, safe_age_ms: int) -> None:
        """Delete marks below the newest manifest, once no run can be at work that began before them.

        One object stands for those in a row between two manifests, so that a manifest that is missing is known to be
        lost. The highest number of all stays taken for ever: the next number is counted from it.
        """
        marks, numbers = self._catalog.marks(), self._catalog.numbers()
        undecided = self._holds.decisions()
        newest = max(numbers, default=max((mark.number for mark in marks), default=0))
        old = {
            mark.number
            for mark in marks
            if mark.number < newest and mark.number not in undecided and now_ms - mark.modified_ms >= safe_age_ms
        }
        ranges = self._catalog.pruned_ranges()
        together = merged_ranges(old, ranges)
        for each in together:
            if numbers and each.start > numbers[0] and each not in ranges:
                with contextlib.suppress(ObjectExists):
                    self._storage.put_if_absent(pruned_range_name(each), PRUNED_CONTENT)
        for number in sorted(old):  # From the lowest on, so that no manifest seems to be lost in between.
            self._storage.delete(manifest_name(number))
        for each in ranges:
            if each not in together or not numbers or each.stop <= numbers[0]:
                self._storage.delete(pruned_range_name(each))

    def _plan(self, policy: PrunePolicy, now_ms: int, ignored_restores: Collection[str]) -> PrunePlan:
        ages = [age_of(manifest) for manifest in self._read(self._catalog.numbers())]
        check_forgotten(ages, policy)
        decisions = self._holds.decisions()
        begun = {number: each for number, each in decisions.items() if isinstance(each, Pruning)}
        verdicts = decide(
            ages,
            policy,
            now_ms=now_ms,
            held={number for number, each in decisions.items() if isinstance(each, Hold)},
            undecided={number for number, each in decisions.items() if isinstance(each, DamagedDecision)},
            in_use=self._manifests_in_use(ignored_restores),
            begun=begun,
        )
        dropped = {verdict.number for verdict in verdicts if verdict.kept_because is None}
        kept = sorted({age.number for age in ages} - dropped)
        newest = next((manifest.object_sizes() for manifest in self._read(kept[-1:])), {})
        # One decision names each object: what follows each other names nearly the same ones.
        named = {*newest, *(name for number in begun.keys() & dropped for name in begun[number].objects)}
        objects: dict[int, dict[str, int]] = {}
        for manifest in self._read(sorted(dropped)):
            own = {name: size for name, size in manifest.object_sizes().items() if name not in named}
            objects[manifest.number] = own
            named |= own.keys()
        doomed = {name: size for sizes in objects.values() for name, size in sizes.items()}
        for number, each in begun.items():
            if number not in kept:
                doomed |= each.objects
        for manifest in self._read(kept):
            for name in manifest.object_names() & doomed.keys():
                del doomed[name]
        return PrunePlan(verdicts=verdicts, objects=objects, doomed=doomed)

    def _require_free(self, plan: PrunePlan, pruned: Collection[int]) -> None:
        for verdict in plan.verdicts:
            if verdict.kept_because is not None:
                name = f"manifest {verdict.number} of backup {self._catalog.backup_id}"
                outcome = "it stays, and the others were deleted" if pruned else "nothing was deleted"
                raise BackupError(f"{name} is {verdict.kept_because}: {outcome}")

    def _drop(self, plan: PrunePlan, ignored_restores: Collection[str]) -> set[int]:
        """Those manifests that are dropped now."""
        claimed = [number for number, names in plan.objects.items() if self._holds.begin_pruning(number, names)]
        # A restore that saw no decision stored its plan before: it is seen here, and the manifest goes later.
        in_use = self._manifests_in_use(ignored_restores)
        free = {number for number in claimed if number not in in_use}
        for _ in self._in_parallel(self._put_marks, self._in_chains(free)):
            pass
        return free

    def _in_chains(self, dropped: Collection[int]) -> list[list[int]]:
        """The dropped manifests in the order in which marks may be put: a delta before its base.

        Those that stay and can only be read with one that is dropped get a checkpoint before. A delta has the number
        behind its base: with that number taken none can come that is not seen here.
        """
        following = max(dropped, default=0) + 1
        if dropped and following not in self._catalog.taken():
            with contextlib.suppress(ObjectExists):
                self._storage.put_if_absent(manifest_name(following), PRUNED_CONTENT)
        chains: dict[int, list[int]] = {}
        for number, base in self._in_parallel(self._base_of, self._catalog.numbers() if dropped else []):
            if number in dropped:
                chains[number] = [number, *(chains.pop(base, []) if base is not None else [])]
            elif base in dropped:
                with contextlib.suppress(ManifestPruned):
                    self._catalog.put_checkpoint(number)
        return list(chains.values())

    def _put_marks(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._storage.replace(manifest_name(number), PRUNED_CONTENT)

    def _base_of(self, number: int) -> tuple[int, int | None]:
        try:
            return number, self._catalog.base_of(number)
        except ManifestPruned:
            return number, None

    def _delete_objects(self, watcher: PruneWatcher) -> dict[str, int]:
        """Carry out all decisions about manifests that are gone, also those of prunes that were stopped."""
        marked = {mark.number for mark in self._catalog.marks()}
        decisions = {number: each for number, each in self._holds.decisions().items() if number in marked}
        doomed: dict[str, int] = {}
        for each in decisions.values():
            doomed |= each.objects if isinstance(each, Pruning) else {}
        if doomed:
            self._fence(max(decisions))
            for manifest in self._catalog.history():
                for name in manifest.object_names() & doomed.keys():
                    del doomed[name]
        watcher.deletes(len(doomed))
        for _ in self._in_parallel(self._storage.delete, doomed):
            watcher.deleted(1)
        for number in decisions:
            self._catalog.delete_checkpoint(number)
            self._holds.forget(number)
        return doomed

    def _fence(self, number: int) -> None:
        """Where no manifest is left behind this one, take the next number, which a run that follows it would."""
        while not any(each > number for each in self._catalog.numbers()):
            with contextlib.suppress(ObjectExists):
                self._storage.put_if_absent(manifest_name(self._catalog.head().next_number), PRUNED_CONTENT)
                return

    def _manifests_in_use(self, ignored_restores: Collection[str]) -> dict[int, str]:
        unfinished = self._restores.unfinished(ignored_restores)
        return {number: restore_id for restore_id, number in unfinished.items()}

    def _read(self, numbers: Iterable[int]) -> Iterator[Manifest]:
        """Without those that another prune drops meanwhile."""
        for manifest in self._in_parallel(self._read_one, numbers):
            if manifest is not None:
                yield manifest

    def _read_one(self, number: int) -> Manifest | None:
        try:
            return self._catalog.read(number)
        except ManifestPruned:
            return None

    def _in_parallel(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """A few at a time, so that not all results are in memory, and nothing is begun after a failure."""
        remaining = list(items)
        with ThreadPoolExecutor(self._requests_in_flight) as pool:
            while remaining:
                yield from pool.map(function, remaining[: self._requests_in_flight])
                del remaining[: self._requests_in_flight]


def merged_ranges(numbers: Collection[int], ranges: Iterable[range]) -> list[range]:
    """The same numbers in as few ranges as there can be."""
    found: list[range] = []
    for each in sorted([*ranges, *(range(number, number + 1) for number in numbers)], key=lambda each: each.start):
        if found and each.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, each.stop))
        else:
            found.append(each)
    return found


def _as_it_came(verdict: Verdict) -> Verdict:
    """A manifest that was to be dropped and was not: somebody held, read or pruned it in between."""
    if verdict.kept_because is not None:
        return verdict
    return msgspec.structs.replace(verdict, kept_because="held, read by a restore or pruned since a moment ago")
