"""One backup with its holds and restores in a storage that can die at any call, or have something happen there."""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

import msgspec

from quorate.backup.errors import BackupError
from quorate.backup.manifests import document
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.manifest import Manifest, Mode
from quorate.backup.objects.names import is_layer_name
from quorate.backup.restore.ledger import RestoreDone, RestoreLedger
from quorate.backup.restore.plan import RestorePlan
from quorate.backup.retention.compaction import Merge, compacted, merge_segments, plan_merges
from quorate.backup.retention.holds import Hold, HoldLedger, Pruning
from quorate.backup.retention.prune import Pruner, PruneReport
from quorate.backup.retention.prune_policy import PrunePolicy
from quorate.backup.segments.layout import FrameCodec
from quorate.kernel.ids import ProducerEpoch, ProducerId
from tests.unit.backup.backup_runs import BACKUP_ID, PartitionLog, read_back, run_backup
from tests.unit.backup.memory_storage import MemoryStorage

DAY_MS = 86_400_000


def layered(max_deltas: int) -> AbstractContextManager[object]:
    """Meanwhile manifests stand on layers however small they are, with at most so many deltas on top."""
    return patch.multiple(document, MIN_LAYERED_BYTES=0, MAX_DELTAS=max_deltas)


class Killed(BaseException):
    """The process is gone: nothing catches this, and no call has an effect any more."""


class Calls:
    """Counts the calls of several storages together. At one of them something happens."""

    def __init__(self) -> None:
        self.count = 0
        self._at: int | None = None
        self._event: Callable[[], None] = lambda: None
        self._is_late = False
        self.is_dead = False

    def kill_at(self, call: int, *, is_late: bool) -> None:
        """Before, or with ``is_late`` after, the call has its effect."""

        def die() -> None:
            self.is_dead = True

        self.happens_at(call, die, is_late=is_late)

    def happens_at(self, call: int, event: Callable[[], None], *, is_late: bool = False) -> None:
        self._at, self._event, self._is_late = self.count + call, event, is_late

    def revive(self) -> None:
        self.is_dead, self._at = False, None

    def call(self, effect: Callable[[], object]) -> None:
        self.count += 1
        is_now = self.count == self._at
        if is_now and not self._is_late:
            self._event()
        self._check()
        effect()
        if is_now and self._is_late:
            self._event()
            self._check()

    def _check(self) -> None:
        if self.is_dead:
            raise Killed


class WatchedStorage(MemoryStorage):
    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self.shared = calls

    def call(self, effect: Callable[[], object]) -> None:
        self.shared.call(lambda: MemoryStorage.call(self, effect))


class QuietWatcher:
    def deletes(self, count: int) -> None:
        """Nobody looks."""

    def deleted(self, count: int) -> None:
        """Nobody looks."""


class RetainedBackup:
    """What commands do to a backup, one after the other or inside each other."""

    def __init__(self, calls: Calls | None = None) -> None:
        self.calls = calls or Calls()
        self.storage = WatchedStorage(self.calls)
        self.holds_storage = WatchedStorage(self.calls)
        self.restores_storage = WatchedStorage(self.calls)
        self.catalog = ManifestCatalog(self.storage, BACKUP_ID)
        self.holds = HoldLedger(self.holds_storage, BACKUP_ID)
        self.restores = RestoreLedger(self.restores_storage)
        self.log = PartitionLog()
        self.reading: dict[str, int] = {}  # Restores that have begun, and the manifest of each.
        self.held: set[int] = set()  # By holds that were confirmed.
        self._runs = 0
        self._prefix = ""  # Of the ids of runs, so that those of two views differ.

    def copy(self) -> "RetainedBackup":
        return copy.deepcopy(self)

    def view(self, calls: Calls, name: str) -> "RetainedBackup":
        """The same backup, for another command: its calls are counted apart, and its runs have ids of their own."""
        other = RetainedBackup(calls)
        for ours, theirs in (
            (self.storage, other.storage),
            (self.holds_storage, other.holds_storage),
            (self.restores_storage, other.restores_storage),
        ):
            theirs.contents, theirs.modified_ms = ours.contents, ours.modified_ms
        other.log = copy.deepcopy(self.log)
        other._prefix = name
        return other

    def back_up(self, mode: Mode = Mode.INCREMENTAL) -> Manifest:
        self._runs += 1
        return run_backup(self.storage, self.log, f"{self._prefix}run{self._runs}", mode=mode)

    def grow(self, runs: int, mode: Mode = Mode.INCREMENTAL) -> None:
        for _ in range(runs):
            self.log.append(3)
            self.back_up(mode)

    def compact(self, min_segment_bytes: int = 100_000) -> Manifest | None:
        self._runs += 1
        newest = self.catalog.latest()
        if newest is None:
            return None
        groups = plan_merges(newest, min_segment_bytes=min_segment_bytes, max_segment_bytes=200_000)
        merges = [
            Merge(
                group=group,
                merged=merge_segments(
                    self.storage,
                    group,
                    cluster_id=newest.cluster_id,
                    codec=FrameCodec.LZ4,
                    attempt=f"{self._prefix}compact{self._runs}-{index}",
                ),
            )
            for index, group in enumerate(groups)
        ]
        manifest, number = self.catalog.head()
        if manifest is None:
            return None
        following, taken = compacted(
            manifest, merges, number=number, run_id=f"{self._prefix}compact{self._runs}", created_ms=1
        )
        if taken:
            self.catalog.publish(following, [merge.merged for merge in taken])
        return following if taken else None

    def prune(self, *, now_ms: int = DAY_MS, **policy: float | bool) -> PruneReport:
        pruner = Pruner(self.storage, self.catalog, self.holds, self.restores, requests_in_flight=1)
        return pruner.prune(msgspec.convert(policy, PrunePolicy), QuietWatcher(), now_ms=now_ms)

    def hold(self, number: int) -> None:
        self.holds.hold(self.catalog, number, Hold(since_ms=1, reason="a case"))
        self.held.add(number)

    def release(self, number: int) -> None:
        self.held.discard(number)
        self.holds.release(number, now_ms=2)

    def forget_marks(self) -> None:
        pruner = Pruner(self.storage, self.catalog, self.holds, self.restores)
        pruner.forget_marks(now_ms=1, safe_age_ms=0)

    def begin_restore(self, number: int) -> None:
        """As ``RestoreRun`` does it: read, store the plan, look once more."""
        manifest = self.catalog.read(number)
        digest = f"{number:x}{self._runs:x}{self._prefix}"
        restore_id = self.restores.id_after(self.restores.latest(digest), digest)
        self.restores.put_plan(restore_id, _plan(manifest))
        if self.holds.drops(self.catalog, number):
            self.restores.put_abandoned(restore_id)
            raise BackupError("pruned meanwhile")
        self.reading[restore_id] = number

    def end_restores(self) -> None:
        for restore_id in list(self.reading):
            self.restores.put_done(restore_id, RestoreDone(finished_ms=1, record_count=1))
            del self.reading[restore_id]

    def manifests(self) -> dict[int, Manifest]:
        """Those that are there, past the storage's calls."""
        storage = MemoryStorage()
        storage.contents, storage.modified_ms = self.storage.contents, self.storage.modified_ms
        return {manifest.number: manifest for manifest in ManifestCatalog(storage, BACKUP_ID).history()}

    def orphans(self) -> set[str]:
        named = {name for manifest in self.manifests().values() for name in manifest.object_names()}
        there = {name for name in self.storage.contents if name.startswith("topics/") or is_layer_name(name)}
        return there - named

    def assert_whole(self) -> None:
        manifests = self.manifests()
        for manifest in manifests.values():
            for name, size_bytes in manifest.object_sizes().items():
                content = self.storage.contents.get(name)
                assert content is not None, f"manifest {manifest.number} names {name}, which is not there"
                assert len(content) == size_bytes
        assert set(self.reading.values()) <= manifests.keys()
        assert self.held <= manifests.keys()

    def begun(self) -> set[int]:
        """Manifests that a prune has decided to drop and that are not gone, or whose objects are not."""
        return {number for number, each in self.holds.decisions().items() if isinstance(each, Pruning)}

    def everything(self) -> dict[int, list[bytes]]:
        """All batches behind each manifest."""
        return {number: read_back(self.storage, manifest) for number, manifest in self.manifests().items()}


def _plan(manifest: Manifest) -> RestorePlan:
    return RestorePlan(
        backup_id=manifest.backup_id,
        manifest_number=manifest.number,
        target_cluster_id="target",
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        start_ms=None,
        end_ms=None,
        log_append_time="original",
        replication_factor=None,
        map_id="map",
        topics=[],
    )
