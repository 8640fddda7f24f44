"""The manifests of one backup in its storage: which is the newest, and how the next is published. Does I/O.

Objects first, manifest last: nothing is published that names an object which is not there in its full size. And only
one run can publish a number: the storage decides by put-if-absent, and a storage that does not decide is not used.
"""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from quorate.backup.errors import (
    BackupError,
    CommitConflict,
    DamagedManifest,
    ObjectExists,
    ObjectNotFound,
    StorageError,
)
from quorate.backup.manifest import Manifest, SegmentEntry, decode_manifest, encode_manifest
from quorate.backup.manifest_rules import check_manifest
from quorate.backup.object_names import MANIFESTS, manifest_name, manifest_number, probe_name
from quorate.backup.storage import ObjectStorage

_REQUESTS_IN_FLIGHT = 16


class ManifestCatalog:
    """``storage`` is the backup's own folder."""

    def __init__(self, storage: ObjectStorage, backup_id: str) -> None:
        self.backup_id = backup_id
        self._storage = storage
        self._probed = False

    def numbers(self) -> list[int]:
        found = (manifest_number(each.name) for each in self._storage.objects(MANIFESTS))
        return sorted(number for number in found if number is not None)

    def latest(self) -> Manifest | None:
        """The newest manifest. None only where the storage answered, and has none: anything else is an error."""
        numbers = self.numbers()
        return self.read(numbers[-1]) if numbers else None

    def read(self, number: int) -> Manifest:
        name = manifest_name(number)
        try:
            data = self._storage.read(name)
        except ObjectNotFound:
            raise BackupError(f"backup {self.backup_id} has no manifest {number}") from None
        manifest = decode_manifest(data, self._storage.url_of(name))
        if manifest.number != number or manifest.backup_id != self.backup_id:
            raise DamagedManifest(
                f"manifest {self._storage.url_of(name)} says that it is number {manifest.number} "
                f"of backup {manifest.backup_id}: it was copied or renamed"
            )
        check_manifest(manifest)
        return manifest

    def history(self) -> Iterator[Manifest]:
        """Every manifest, the oldest first."""
        for number in self.numbers():
            yield self.read(number)

    def probe(self, run_id: str) -> None:
        """Raise unless the storage can be written and refuses to put an object a second time."""
        name = probe_name(run_id)
        self._storage.put_if_absent(name, b"1")
        try:
            self._storage.put_if_absent(name, b"2")
        except ObjectExists:
            self._probed = True
        else:
            raise StorageError(
                f"storage {self._storage.location.url} does not enforce put-if-absent: two runs could overwrite "
                "each other's manifest, so no backup is written there"
            )
        finally:
            with contextlib.suppress(StorageError):  # Not everyone who may write may delete.
                self._storage.delete(name)

    def publish(self, manifest: Manifest, new_segments: Sequence[SegmentEntry]) -> None:
        """Make the manifest the backup. ``new_segments`` are those that no earlier manifest names.

        ``CommitConflict`` where another run was faster; then nothing has changed.
        """
        check_manifest(manifest)
        if not self._probed:
            self.probe(manifest.run_id)
        self._check_present(new_segments)
        try:
            self._storage.put_if_absent(manifest_name(manifest.number), encode_manifest(manifest))
        except ObjectExists:
            # A request that was sent again may have met the object of its own first try.
            if self.read(manifest.number).run_id != manifest.run_id:
                raise CommitConflict(
                    f"another run has committed manifest {manifest.number} of backup {self.backup_id} first; "
                    "nothing of this run was committed"
                ) from None
        except StorageError:
            # The request may have succeeded, and only its answer been lost.
            if not self._is_published(manifest):
                raise

    def _check_present(self, segments: Sequence[SegmentEntry]) -> None:
        with ThreadPoolExecutor(_REQUESTS_IN_FLIGHT) as pool:
            found = pool.map(self._storage.info, [segment.name for segment in segments])
            for segment, info in zip(segments, found, strict=True):
                if info.size_bytes != segment.size_bytes:
                    raise StorageError(
                        f"{self._storage.url_of(segment.name)} has {info.size_bytes} bytes, not {segment.size_bytes}: "
                        "the manifest is not written"
                    )

    def _is_published(self, manifest: Manifest) -> bool:
        try:
            return self.read(manifest.number).run_id == manifest.run_id
        except BackupError:
            return False


def list_backup_ids(storage: ObjectStorage) -> list[str]:
    """Folders below the storage's root that hold a manifest."""
    return [folder for folder in storage.folders() if _holds_manifest(storage, folder)]


def _holds_manifest(storage: ObjectStorage, folder: str) -> bool:
    names = (each.name.removeprefix(f"{folder}/") for each in storage.objects(f"{folder}/{MANIFESTS}"))
    return any(manifest_number(name) is not None for name in names)
