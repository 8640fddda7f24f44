"""Objects that no manifest names: left by attempts that lost, runs that were killed, uploads cut short. Pure.

List the objects before reading the manifests: then whatever a run commits in between is named in time.
"""

from collections.abc import Iterable, Iterator

from quorate.backup.manifest import Manifest
from quorate.backup.object_names import manifest_number
from quorate.backup.storage import ObjectInfo


def find_orphans(objects: Iterable[ObjectInfo], manifests: Iterable[Manifest]) -> list[ObjectInfo]:
    """Of all objects in the backup's folder those that are neither manifests nor named by any, however old."""
    named: set[str] = set()
    for manifest in manifests:
        named |= manifest.object_names()
    return [each for each in objects if each.name not in named and manifest_number(each.name) is None]


def old_enough(orphans: Iterable[ObjectInfo], *, now_ms: int, safe_age_ms: int) -> Iterator[ObjectInfo]:
    """Those that may be deleted. A younger one may belong to a run that has yet to commit."""
    return (each for each in orphans if now_ms - each.modified_ms >= safe_age_ms)
