"""The manifests of one backup in its storage: which is the newest, and how the next is published. Does I/O.

Objects first, manifest last: nothing is published that names an object which is not there in its full size. And only
one run can publish a number: the storage decides by put-if-absent, and a storage that does not decide is not used.

A pruned manifest leaves a mark in its place. So a run that began before it was pruned, and is late, finds its number
taken and stops, and a manifest that is missing without a mark is known to be lost.

A manifest may be stored as a delta on the one before it. That one can be pruned all the same: before, the manifest that
follows it gets a checkpoint. Whoever meets a mark below a delta reads the checkpoint instead. A layer, which manifests
repeat instead of each other, is an object that they name, as their segments are: it is there before they are, and as
long as one of them.
"""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from quorate.backup.errors import BackupError, CommitConflict, ManifestPruned, ObjectExists, StorageError
from quorate.backup.manifests.delta import ManifestDelta
from quorate.backup.manifests.document import (
    KnownManifest,
    ManifestReader,
    decode_document,
    encode_checkpoint,
    encode_document,
)
from quorate.backup.manifests.manifest import Manifest, SegmentEntry
from quorate.backup.manifests.rules import check_manifest
from quorate.backup.objects.names import (
    MANIFESTS,
    PRUNED_CONTENT,
    checkpoint_name,
    is_safe_segment,
    manifest_name,
    manifest_number,
    probe_name,
    pruned_range,
)
from quorate.backup.objects.storage import ObjectInfo, ObjectStorage

_REQUESTS_IN_FLIGHT = 16
# A newest manifest that is pruned before it was read has a newer one behind it.
_MAX_LOOKS = 10


class Head(NamedTuple):
    """What the next run follows: both from one look at the storage."""

    manifest: Manifest | None
    next_number: int  # Behind all that were ever used.


class PrunedMark(NamedTuple):
    number: int
    modified_ms: int


class ManifestCatalog:
    """``storage`` is the backup's own folder."""

    def __init__(self, storage: ObjectStorage, backup_id: str) -> None:
        self.backup_id = backup_id
        self._storage = storage
        self._probed = False
        self._reader = ManifestReader(storage, backup_id)
        self._tip: KnownManifest | None = None  # What ``head`` returned last, or what was published since.

    def numbers(self) -> list[int]:
        """Those of the manifests that are there; pruned ones are not."""
        return self._unpruned(self._listed())

    def taken(self) -> set[int]:
        """Numbers of manifests and of marks."""
        return set(self._listed())

    def marks(self) -> list[PrunedMark]:
        listed = sorted(self._listed().items())
        return [PrunedMark(number, info.modified_ms) for number, info in listed if _is_mark(info)]

    def pruned_ranges(self) -> list[range]:
        """Numbers whose marks were put together."""
        found = (pruned_range(each.name) for each in self._storage.objects(MANIFESTS))
        return sorted((each for each in found if each), key=lambda each: (each.start, each.stop))

    def head(self) -> Head:
        """The newest manifest. None only where the storage answered, and has none: anything else is an error."""
        for _ in range(_MAX_LOOKS):
            listed = self._listed()
            next_number = max(listed, default=0) + 1
            numbers = self._unpruned(listed)
            self._tip = None
            if not numbers:
                return Head(None, next_number)
            with contextlib.suppress(ManifestPruned):
                self._tip = self._reader.read(numbers[-1])
                return Head(self._tip.manifest, next_number)
        raise StorageError(f"storage {self._storage.location.url} lists manifests that it does not have")

    def latest(self) -> Manifest | None:
        return self.head().manifest

    def read(self, number: int) -> Manifest:
        return self._reader.read(number).manifest

    def base_of(self, number: int) -> int | None:
        """The manifest that this one is a delta on; None where it stands by itself or on layers."""
        document = self._reader.stored(number).document
        return document.base_number if isinstance(document, ManifestDelta) and not document.layers else None

    def put_checkpoint(self, number: int) -> None:
        """Store the manifest so that it can be read without the one that it follows."""
        manifest = self.read(number)
        content = encode_checkpoint(manifest, self._reader.layers(manifest.layers))
        with contextlib.suppress(ObjectExists):
            self._storage.put_if_absent(checkpoint_name(number), content)

    def delete_checkpoint(self, number: int) -> None:
        """Of a manifest that is gone."""
        self._storage.delete(checkpoint_name(number))

    def history(self) -> Iterator[Manifest]:
        """Every manifest, the oldest first, without those that are pruned meanwhile.

        Where one is, those are here, too, that were committed meanwhile: they name what it did.
        """
        seen: set[int] = set()
        looks_again = True
        while looks_again:
            looks_again = False
            for number, info in sorted(self._listed().items()):
                if number in seen:
                    continue
                seen.add(number)
                try:
                    yield self.read(number)  # Marks are read, too: what they replace might name objects.
                except ManifestPruned:
                    looks_again |= not _is_mark(info)

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

        It may be stored as a delta on what ``head`` returned last, but only under the very next number: a prune makes
        sure that this number is taken, and stores what took it whole, before it drops a manifest.
        ``CommitConflict`` where another run was faster; then nothing has changed.
        """
        check_manifest(manifest, None if self._tip is None else self._tip.checked)
        if not self._probed:
            self.probe(manifest.run_id)
        self._check_present(new_segments)
        if max(self._listed(), default=0) > manifest.number:  # Marks are kept for a day, no longer.
            raise self._conflict(manifest)
        encoded = encode_document(manifest, self._base_for(manifest), self._reader.layers)
        decode_document(
            encoded.content, self._storage.url_of(manifest_name(manifest.number))
        )  # Later runs can read it.
        if encoded.layer_content is not None:
            self._put_layer(encoded.known.manifest, encoded.layer_content)
        try:
            self._storage.put_if_absent(manifest_name(manifest.number), encoded.content)
        except ObjectExists:
            # A request that was sent again may have met the object of its own first try.
            if self._run_id_of(manifest.number) != manifest.run_id:
                raise self._conflict(manifest) from None
        except StorageError:
            # The request may have succeeded, and only its answer been lost.
            if not self._is_published(manifest):
                raise
        self._tip = self._reader.remember(encoded.known)

    def _put_layer(self, manifest: Manifest, content: bytes) -> None:
        *below, layer = manifest.layers
        decode_document(content, self._storage.url_of(layer.name))
        try:
            self._storage.put_if_absent(layer.name, content)
        except ObjectExists:  # As a request that was sent again meets what it has put itself.
            if self._storage.read(layer.name) != content:
                raise StorageError(
                    f"{self._storage.url_of(layer.name)} is there already: nothing was committed"
                ) from None
        self._reader.remember_layer(layer, msgspec.structs.replace(manifest, layers=below))

    def _base_for(self, manifest: Manifest) -> KnownManifest | None:
        follows = self._tip is not None and self._tip.manifest.number + 1 == manifest.number
        return self._tip if follows else None

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
            return self._reader.stored(manifest.number).document.run_id == manifest.run_id
        except BackupError:
            return False

    def _run_id_of(self, number: int) -> str | None:
        """None where the manifest was pruned."""
        try:
            return self._reader.stored(number).document.run_id
        except ManifestPruned:
            return None

    def _conflict(self, manifest: Manifest) -> CommitConflict:
        return CommitConflict(
            f"another run has committed manifest {manifest.number} of backup {self.backup_id} first; "
            "nothing of this run was committed"
        )

    def _unpruned(self, listed: dict[int, ObjectInfo]) -> list[int]:
        numbers = sorted([number for number, info in listed.items() if not _is_mark(info)])
        newest = numbers[-1] if numbers else 0
        for number in [number for number in listed if number > newest]:
            # Nothing newer than what is taken for the newest may be there, damaged and as short as a mark.
            with contextlib.suppress(ManifestPruned):
                self.read(number)
        return numbers

    def _listed(self) -> dict[int, ObjectInfo]:
        objects = self._storage.objects(MANIFESTS)
        return {number: each for each in objects if (number := manifest_number(each.name)) is not None}


def list_backup_ids(storage: ObjectStorage) -> list[str]:
    """Folders below the storage's root that hold a manifest."""
    return [folder for folder in storage.folders() if is_safe_segment(folder) and _holds_manifest(storage, folder)]


def _holds_manifest(storage: ObjectStorage, folder: str) -> bool:
    objects = storage.objects(f"{folder}/{MANIFESTS}")
    named = ((manifest_number(each.name.removeprefix(f"{folder}/")), each) for each in objects)
    return any(number is not None and not _is_mark(each) for number, each in named)


def _is_mark(info: ObjectInfo) -> bool:
    """By its size alone, so that a listing tells. No manifest is so short, unless it is damaged."""
    return info.size_bytes == len(PRUNED_CONTENT)
