"""Objects that no manifest names: left by attempts that lost, runs that were killed, uploads cut short.

The objects are listed before the manifests are read: then whatever a run commits in between is named in time.
"""

from collections.abc import Iterable, Iterator

from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.manifest import Manifest
from quorate.backup.objects.names import checkpoint_name, manifest_number, pruned_range, run_of
from quorate.backup.objects.storage import ObjectInfo, ObjectStorage


def find_orphans(objects: Iterable[ObjectInfo], manifests: Iterable[Manifest]) -> list[ObjectInfo]:
    """The objects in the backup's folder that are no manifests and that no manifest names, however old."""
    named: set[str] = set()
    for manifest in manifests:
        named |= manifest.object_names()
        named.add(checkpoint_name(manifest.number))
    return [each for each in objects if each.name not in named and not _is_about_manifests(each.name)]


def _is_about_manifests(name: str) -> bool:
    return manifest_number(name) is not None or pruned_range(name) is not None


def old_enough(orphans: Iterable[ObjectInfo], *, now_ms: int, safe_age_ms: int) -> Iterator[ObjectInfo]:
    """Those that may be deleted. A younger one may belong to a run that has yet to commit, and with it all of its run.

    A run may take longer than the safe age; it is at work for as long as it writes something within that time.
    """
    runs: dict[str, list[ObjectInfo]] = {}
    for each in orphans:
        runs.setdefault(run_of(each.name) or each.name, []).append(each)
    for objects in runs.values():
        if now_ms - max(each.modified_ms for each in objects) >= safe_age_ms:
            yield from objects


def collect_orphans(storage: ObjectStorage, catalog: ManifestCatalog, *, now_ms: int, safe_age_ms: int) -> list[str]:
    """Names of the deleted objects. Younger ones than ``safe_age_ms`` may be of a run that has yet to commit."""
    objects = list(storage.objects())  # Before the manifests: see ``orphans``.
    orphans = find_orphans(objects, catalog.history())
    deleted = [each.name for each in old_enough(orphans, now_ms=now_ms, safe_age_ms=safe_age_ms)]
    for name in deleted:
        storage.delete(name)
    return deleted
