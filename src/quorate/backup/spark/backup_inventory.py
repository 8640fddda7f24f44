"""What a backup consists of: its manifests, and every segment that one of them names. Does I/O."""

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from quorate.backup.errors import BackupError, ManifestMissing, ManifestPruned
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.manifest import SegmentEntry
from quorate.backup.objects.names import manifest_name
from quorate.backup.restore.ledger import RestoreLedger
from quorate.backup.retention.holds import HoldLedger
from quorate.backup.retention.prune import merged_ranges


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
