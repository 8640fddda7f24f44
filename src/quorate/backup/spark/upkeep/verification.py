"""Checks the objects of a backup against its manifests, and names every one that is damaged. Does I/O.

The inventory says what a backup consists of: its manifests, each checked against itself, and every segment that one of
them names. The quick check compares presence, size and SHA-256, runs on threads here, and says nothing of records. The
deep one opens every frame and checks every batch, and runs on Spark.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import msgspec

from quorate.backup.errors import BackupError, DamagedSegment, ManifestMissing, ManifestPruned, StorageError
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.manifest import SegmentEntry
from quorate.backup.objects.names import is_segment_name, manifest_name
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import ObjectStorage, StorageLocation, StoredObject
from quorate.backup.restore.ledger import RestoreLedger
from quorate.backup.retention.holds import HoldLedger
from quorate.backup.retention.prune import merged_ranges
from quorate.backup.segments.verification import verify_deeply, verify_hash
from quorate.backup.spark.session.job import JobWatcher, SparkDriver
from quorate.backup.spark.session.tasks import FinishedTask, Outcome, Report, ignore
from quorate.backup.spark.session.work_sharing import pack_by_bytes
from quorate.kernel.decoding import decode_msgpack

_THREADS = 4
_TASK_BYTES = 128 * 1024 * 1024
_SEGMENTS_PER_TASK = 1000


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # Of the object, below the backup's folder.
    message: str


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    backup_id: str
    manifest_number: int  # Of the newest.
    manifest_count: int
    unreadable_count: int  # Of those manifests.
    newest_only: bool
    segments: list[SegmentEntry]
    damages: list[Damage]  # Manifests that cannot be read; what only they name is not among the segments.


def take_inventory(catalog: ManifestCatalog, *, newest_only: bool = False) -> Inventory | None:
    """Read the manifests, the newest first. None where the storage answered, and has none."""
    numbers = catalog.numbers()
    if not numbers:
        return None
    wanted = numbers[-1:] if newest_only else numbers
    segments: dict[str, SegmentEntry] = {}
    damages: list[Damage] = [] if newest_only else _missing_manifests(catalog, numbers)
    pruned = unreadable = 0
    for number in reversed(wanted):
        try:
            manifest = catalog.read(number)
        except ManifestPruned:
            pruned += 1
            continue
        except ManifestMissing as error:
            if any(number in each for each in catalog.pruned_ranges()):
                pruned += 1  # Its mark was put together with others meanwhile.
                continue
            damages.append(Damage(name=manifest_name(number), message=str(error)))
            continue
        except BackupError as error:
            unreadable += 1
            damages.append(Damage(name=manifest_name(number), message=str(error)))
            continue
        for each in manifest.segments():
            segments.setdefault(each.name, each)  # A later manifest knows more of it: what was superseded.
    if pruned == len(wanted):
        return take_inventory(catalog, newest_only=newest_only)  # There are newer ones by now, or none at all.
    return Inventory(
        backup_id=catalog.backup_id,
        manifest_number=numbers[-1],
        manifest_count=len(wanted) - pruned,
        unreadable_count=unreadable,
        newest_only=newest_only,
        segments=list(segments.values()),
        damages=damages,
    )


def damages_beside(holds: HoldLedger, restores: RestoreLedger, backup_id: str) -> list[Damage]:
    """Decisions about manifests, and what is kept of restores."""
    decisions = [Damage(name=each.name, message=each.message) for each in holds.damages()]
    of_restores = restores.damages().items()
    return decisions + [Damage(name=f"{backup_id}~restores/{name}", message=message) for name, message in of_restores]


def _missing_manifests(catalog: ManifestCatalog, numbers: Sequence[int]) -> list[Damage]:
    """A manifest that was pruned has left a mark. Numbers are compared, never counted through: they may be forged."""
    marked = [range(mark.number, mark.number + 1) for mark in catalog.marks()]
    there = [range(number, number + 1) for number in numbers]
    known = merged_ranges([], [*there, *marked, *catalog.pruned_ranges()])
    return [
        Damage(name=manifest_name(before.stop), message=_missing(catalog.backup_id, before.stop, after.start - 1))
        for before, after in pairwise(known)
        if numbers[0] < before.stop < numbers[-1]
    ]


def _missing(backup_id: str, first: int, last: int) -> str:
    which = f"manifest {first}" if first == last else f"manifests {first} to {last}"
    return f"backup {backup_id} has no {which}"


class VerificationReport(msgspec.Struct, frozen=True, kw_only=True):
    backup_id: str
    manifest_number: int
    deep: bool
    newest_only: bool
    manifests: int
    unreadable_manifests: int  # What only they name is not known.
    objects: int  # Without the manifests.
    record_count: int | None  # Of data, in the objects that are sound; None where no batch was opened.
    size_bytes: int  # Of the objects that are sound.
    damages: list[Damage]


class DeepCheck:
    """The work of a job: called with the encoded entries of some segments, returns what is wrong with them."""

    def __init__(self, location: StorageLocation) -> None:
        self._location = location

    def __call__(self, task: bytes, report: Report = ignore, /) -> Outcome:
        entries = decode_msgpack(task, list[SegmentEntry])
        storage = open_storage(self._location)
        damages: list[Damage] = []
        for entry in entries:
            damage = _check(storage, entry, verify_deeply)
            damages += [] if damage is None else [damage]
            report(entry.size_bytes, _data_records(entry))
        size_bytes, records = sum(each.size_bytes for each in entries), sum(_data_records(each) for each in entries)
        return Outcome(msgspec.msgpack.encode(damages), size_bytes, records)


def verify_quickly(storage: ObjectStorage, inventory: Inventory, watcher: JobWatcher) -> VerificationReport:
    damages: list[Damage] = []
    with ThreadPoolExecutor(_THREADS) as pool:
        found = pool.map(lambda entry: _check(storage, entry, verify_hash), inventory.segments)
        for index, (entry, damage) in enumerate(zip(inventory.segments, found, strict=True)):
            damages += [] if damage is None else [damage]
            watcher.tasks_finished([FinishedTask(index, entry.size_bytes, 0)], index + 1)
    return _report(inventory, damages, deep=False)


def verify_on_spark(
    spark: SparkDriver, location: StorageLocation, inventory: Inventory, watcher: JobWatcher
) -> VerificationReport:
    tasks = [msgspec.msgpack.encode(task) for task in pack_segments(inventory.segments)]
    rows = spark.run(DeepCheck(location), tasks, watcher) if tasks else []
    damages = [damage for row in rows for damage in decode_msgpack(row, list[Damage])]
    return _report(inventory, damages, deep=True)


def without_pruned(report: VerificationReport, catalog: ManifestCatalog) -> VerificationReport:
    """The report without objects that no manifest names any more: a prune took them while they were verified."""
    if not any(is_segment_name(damage.name) for damage in report.damages):
        return report
    try:
        named = {name for manifest in catalog.history() for name in manifest.object_names()}
    except BackupError:
        return report  # What a manifest that cannot be read names is not known.
    damages = [each for each in report.damages if each.name in named or not is_segment_name(each.name)]
    return msgspec.structs.replace(report, damages=damages)


def pack_segments(entries: Iterable[SegmentEntry]) -> list[list[SegmentEntry]]:
    """Tasks of about equal size, the largest segments first."""
    return pack_by_bytes(entries, lambda entry: entry.size_bytes, max_bytes=_TASK_BYTES, max_items=_SEGMENTS_PER_TASK)


def _check(
    storage: ObjectStorage, entry: SegmentEntry, verify: Callable[[StoredObject, SegmentEntry], object]
) -> Damage | None:
    try:
        verify(StoredObject(storage, entry.name), entry)
    except DamagedSegment as error:
        return Damage(name=entry.name, message=str(error))
    except StorageError as error:
        return Damage(name=entry.name, message=f"segment {entry.name} cannot be read: {error}")
    except BackupError as error:
        return Damage(name=entry.name, message=f"segment {entry.name} is damaged: {error}")
    return None


def _data_records(entry: SegmentEntry) -> int:
    return entry.record_count - entry.control_record_count


def _report(inventory: Inventory, damages: list[Damage], *, deep: bool) -> VerificationReport:
    damaged = {damage.name for damage in damages}
    sound = [entry for entry in inventory.segments if entry.name not in damaged]
    return VerificationReport(
        backup_id=inventory.backup_id,
        manifest_number=inventory.manifest_number,
        deep=deep,
        newest_only=inventory.newest_only,
        manifests=inventory.manifest_count,
        unreadable_manifests=inventory.unreadable_count,
        objects=len(inventory.segments),
        record_count=sum(map(_data_records, sound)) if deep else None,
        size_bytes=sum(entry.size_bytes for entry in sound),
        damages=sorted([*inventory.damages, *damages], key=lambda damage: damage.name),
    )
