"""Deletes what killed runs and lost attempts left in a backup's folder. Does I/O."""

from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.objects.storage import ObjectStorage
from quorate.backup.retention.orphans import find_orphans, old_enough


def collect_orphans(storage: ObjectStorage, catalog: ManifestCatalog, *, now_ms: int, safe_age_ms: int) -> list[str]:
    """Names of the deleted objects. Younger ones than ``safe_age_ms`` may be of a run that has yet to commit."""
    objects = list(storage.objects())  # Before the manifests: see ``orphans``.
    orphans = find_orphans(objects, catalog.history())
    deleted = [each.name for each in old_enough(orphans, now_ms=now_ms, safe_age_ms=safe_age_ms)]
    for name in deleted:
        storage.delete(name)
    return deleted
