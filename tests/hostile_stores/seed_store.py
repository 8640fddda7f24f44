"""A store that holds one of everything, inside a folder with neighbours; it can be put back as it was."""

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from quorate.backup.errors import BackupError
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.manifest import GroupEntry, GroupOffset, Manifest, Mode
from quorate.backup.objects.names import PRUNED_CONTENT, manifest_name, pruned_range_name
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import ObjectStorage, StorageLocation
from quorate.backup.restore.claims import PartitionClaim, take_run_number
from quorate.backup.restore.ledger import GroupSnapshot, RestoreDone, RestoreLedger, restores_below
from quorate.backup.retention.holds import Hold, HoldLedger, holds_location
from quorate.kernel.ids import Offset, PartitionIndex
from quorate.records.batch import Compression, TimestampType
from tests.hostile_stores.restoring import planned
from tests.unit.backup.backup_runs import BACKUP_ID, PartitionLog, run_backup
from tests.unit.backup.batches import TOPIC, batch, summary_of
from tests.unit.backup.restored_logs import data_batch, marker, record
from tests.unit.backup.retained_backups import layered

RESTORES = ("abc0-1", "abc1-1")


class SeedStore:
    """``folder`` is taken over: the store is in it, and beside the store are files that nobody may touch."""

    def __init__(self, folder: Path) -> None:
        self.neighbours = folder
        self.root = StorageLocation(f"file://{folder}/store")
        self.folder = folder / "store"
        self.log = PartitionLog()
        _write_neighbours(folder)
        self._fill()
        self.pristine = {path: path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file()}
        self._pristine_contents = {str(path): content for path, content in self.pristine.items()}
        self._pristine_folders = {str(parent) for path in self.pristine for parent in path.parents}
        self._outside = self.outside()

    @property
    def location(self) -> StorageLocation:
        return self.root.below(BACKUP_ID)

    @property
    def storage(self) -> ObjectStorage:
        return open_storage(self.location)

    @property
    def catalog(self) -> ManifestCatalog:
        return ManifestCatalog(self.storage, BACKUP_ID)

    @property
    def holds(self) -> HoldLedger:
        return HoldLedger(open_storage(holds_location(self.root, BACKUP_ID)), BACKUP_ID)

    @property
    def restores(self) -> RestoreLedger:
        return RestoreLedger(open_storage(restores_below(self.root, BACKUP_ID)))

    def reset(self) -> None:
        """As it was before anything was done to it."""
        found = self._remove_strangers(str(self.folder))
        for name, content in self._pristine_contents.items():
            path = Path(name)
            if name not in found or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

    def _remove_strangers(self, folder: str) -> set[str]:
        """Remove what was not there at first; the files that are left. Text is several times faster than paths."""
        found: set[str] = set()
        with os.scandir(folder) as entries:
            for entry in list(entries):
                if entry.is_dir(follow_symlinks=False):
                    if entry.path in self._pristine_folders:
                        found |= self._remove_strangers(entry.path)
                    else:
                        shutil.rmtree(entry.path)
                elif entry.path in self._pristine_contents and entry.is_file(follow_symlinks=False):
                    found.add(entry.path)
                else:
                    os.unlink(entry.path)
        return found

    def assert_outside_is_untouched(self) -> None:
        found = self.outside()
        assert found == self._outside, f"changed outside of the store: {found.items() ^ self._outside.items()}"

    def outside(self) -> dict[str, tuple[str, int]]:
        return dict(self._entries())

    def _entries(self) -> Iterator[tuple[str, tuple[str, int]]]:
        for folder, folders, files in os.walk(self.neighbours):
            if folder == str(self.neighbours):
                folders.remove("store")
            for name in [*folders, *files]:
                path = Path(folder) / name
                content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
                yield str(path), (content, path.stat().st_mtime_ns)

    def _fill(self) -> None:
        storage, log = self.storage, self.log
        for mode in (Mode.SNAPSHOT, Mode.INCREMENTAL):
            _grow(log)
            run_backup(storage, log, f"run{log.end_offset}", mode=mode, range_bytes=10**6)
        log.append(3)
        log.elect_unclean(log.end_offset - 3)
        log.append(2)
        log.delete_records(4)
        newest = run_backup(storage, log, "last")
        with layered(0):
            self._add_groups(newest)
            log.append(1)
            run_backup(storage, log, "on-layers")
        run_backup(storage, log, "snapshot", mode=Mode.SNAPSHOT)
        self._decide()
        self._restore()

    def _add_groups(self, newest: Manifest) -> None:
        offsets = [GroupOffset(topic=TOPIC, partition=PartitionIndex(0), offset=Offset(7), metadata="here")]
        groups = [GroupEntry(group="readers", captured_ms=5, state="Empty", offsets=offsets)]
        manifest = msgspec.structs.replace(
            newest, number=newest.number + 1, groups=groups, compacted_from=newest.number
        )
        catalog = self.catalog
        catalog.head()
        catalog.publish(manifest, [])

    def _decide(self) -> None:
        self.holds.hold(self.catalog, 2, Hold(since_ms=1, reason="a case"))
        self.holds.hold(self.catalog, 3, Hold(since_ms=1))
        self.holds.release(3, now_ms=2)
        names = {each.name: each.size_bytes for each in self.catalog.read(1).segments()}
        self.holds.begin_pruning(1, dict(list(names.items())[:1]))
        for number in self.catalog.numbers():
            if self.catalog.base_of(number) is not None:
                self.catalog.put_checkpoint(number)
        self.storage.replace(manifest_name(1), PRUNED_CONTENT)
        self.storage.put_if_absent(pruned_range_name(range(9, 12)), PRUNED_CONTENT)

    def _restore(self) -> None:
        restores = self.restores
        for restore_id in RESTORES:
            plan, maps = planned(self.location, self.catalog.read(4), restore_id)
            for topic, offset_map in maps.items():
                restores.put_offset_map(restore_id, plan.map_id, topic, offset_map)
            restores.put_plan(restore_id, plan)
            restores.put_topic_ids(restore_id, {topic.name: topic.source_topic_id for topic in plan.topics})
            storage = open_storage(restores_below(self.root, BACKUP_ID))
            number = take_run_number(storage, restore_id)
            PartitionClaim(storage, restore_id, TOPIC, PartitionIndex(0), run_number=number, now=lambda: 0.0)
        restores.put_group_snapshot(RESTORES[0], GroupSnapshot(group="readers", offsets=[]))
        restores.put_written(RESTORES[0])
        restores.put_done(RESTORES[0], RestoreDone(finished_ms=1, record_count=10))


def _grow(log: PartitionLog) -> None:
    """Batches of every kind: plain, of all codecs, with holes, of transactions that commit and abort."""
    for codec in Compression:
        _put(log, batch(log.end_offset, 3, compression=codec, value_bytes=60, timestamps=[10**12, 10**12 + 1, 5]))
    _put(log, batch(log.end_offset, 2, last_offset_delta=4))
    _put(log, data_batch([record(log.end_offset, key=None)], timestamp_type=TimestampType.LOG_APPEND_TIME))
    for is_commit in (True, False):
        records = [record(log.end_offset + index) for index in range(2)]
        _put(log, data_batch(records, producer_id=5, is_transactional=True))
        _put(log, marker(log.end_offset, 5, is_commit=is_commit))
    _put(log, data_batch([record(log.end_offset)], producer_id=6, is_transactional=True))
    log.append(4, gap=2)


def _put(log: PartitionLog, data: bytes) -> None:
    summary = summary_of(data)
    log.batches.append((summary, data))
    log.end_offset = summary.next_offset


def _write_neighbours(folder: Path) -> None:
    for name in ("victim", "store.qseg", "other/victim.qseg", "other/manifests/000001.json", "topics/a/0/x"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"precious {name}".encode())


def told(error: BaseException) -> Sequence[str]:
    """What is wrong with how an error is told: it must be one sentence."""
    text = str(error)
    faults = []
    if not text.strip() or not text.isprintable():
        faults.append(f"not one printable line: {text!r}")
    if len(text) > 5_000:
        faults.append(f"a sentence of {len(text)} characters")
    if isinstance(error, BackupError) and "Traceback" in text:
        faults.append("a traceback")
    return faults
