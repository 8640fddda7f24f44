"""A manifest in the storage: how it is written, and how it is read from as many objects as it is stored in. Does I/O.

One is stored whole, or as a delta on the one before it. Both are JSON and end with their own SHA-256. Deltas are
written until they would make reading dear, then a whole one again. A manifest that is a delta is read with what it
follows, down to one that is stored whole. Where that was pruned, there is a checkpoint: the delta's own manifest,
whole.
"""

from typing import Final, NamedTuple

import msgspec

from quorate.backup.errors import DamagedManifest, ManifestMissing, ManifestPruned, ObjectNotFound
from quorate.backup.manifests.delta import Chain, ManifestDelta, apply_delta, delta_between
from quorate.backup.manifests.manifest import FORMAT_VERSION, Manifest, encode_manifest
from quorate.backup.manifests.rules import check_manifest
from quorate.backup.objects.names import PRUNED_CONTENT, checkpoint_name, manifest_name
from quorate.backup.objects.storage import ObjectStorage
from quorate.backup.objects.stored_documents import DocumentFault, decode_json, is_sealed, one_line, seal

#: Whoever reads a manifest opens at most so many objects on top of a whole one.
MAX_DELTAS: Final = 60
#: Deltas together are at most so many times as large as the whole one below them: reading stays in proportion, and
#: whole ones add at most a quarter to what the deltas cost.
MAX_DELTA_RATIO: Final = 4
# Manifests that are remembered: most are asked for because the next one follows them.
_REMEMBERED = 32


class KnownManifest(NamedTuple):
    """A manifest and what it is made of in the storage."""

    manifest: Manifest
    chain: Chain
    checked: Manifest | None = None  # The last that all rules are known to hold of: itself, or one that it follows.


class EncodedManifest(NamedTuple):
    content: bytes
    chain: Chain


def encode_document(manifest: Manifest, base: KnownManifest | None) -> EncodedManifest:
    """How the manifest is to be stored. ``base`` is the one that it follows, where that is known and stays."""
    delta = None
    if base is not None and base.chain.delta_count < MAX_DELTAS:
        delta = delta_between(base.manifest, manifest, base.chain)
    if base is not None and delta is not None:
        content = seal(msgspec.json.encode(delta))
        chain = base.chain.with_delta(len(content))
        is_small = 2 * len(content) <= chain.snapshot_bytes
        if is_small and chain.delta_bytes <= MAX_DELTA_RATIO * chain.snapshot_bytes:
            return EncodedManifest(content, chain)
    content = encode_manifest(manifest)
    return EncodedManifest(content, Chain(len(content)))


def decode_document(data: bytes, name: str) -> Manifest | ManifestDelta:
    """Read what is stored as a manifest; ``name`` is for the error."""
    if not is_sealed(data):
        raise DamagedManifest(f"manifest {name} is damaged: it does not match its SHA-256")
    try:
        kind = decode_json(data, _Kind)
        if kind.format_version != FORMAT_VERSION:
            raise DamagedManifest(
                f"manifest {name} has format version {kind.format_version}; "
                f"this version of quorate knows {FORMAT_VERSION}"
            )
        if kind.base_number is None:
            return decode_json(data, Manifest)
        return decode_json(data, ManifestDelta)
    except DocumentFault as error:
        raise DamagedManifest(f"manifest {name} cannot be read: {error}") from None


class _Kind(msgspec.Struct):
    format_version: int
    base_number: int | None = None


class StoredManifest(NamedTuple):
    document: Manifest | ManifestDelta
    size_bytes: int


class ManifestReader:
    """``storage`` is the backup's own folder. Several threads may read at once."""

    def __init__(self, storage: ObjectStorage, backup_id: str) -> None:
        self._storage = storage
        self._backup_id = backup_id
        # By number. Replaced, never changed, for the sake of other threads.
        self._known: dict[int, KnownManifest] = {}

    def read(self, number: int) -> KnownManifest:
        """Asks the storage at least for the manifest itself, since that may be pruned."""
        known = self._resolve(self.stored(number))
        check_manifest(known.manifest, known.checked)
        return self.remember(known._replace(checked=known.manifest))

    def remember(self, known: KnownManifest) -> KnownManifest:
        number = known.manifest.number
        kept = [each for each in self._known.items() if each[0] != number][1 - _REMEMBERED :]
        self._known = {**dict(kept), number: known}
        return known

    def stored(self, number: int) -> StoredManifest:
        name = manifest_name(number)
        try:
            data = self._storage.read(name)
        except ObjectNotFound:
            raise ManifestMissing(f"backup {self._backup_id} has no manifest {number}") from None
        if data == PRUNED_CONTENT:
            raise ManifestPruned(f"manifest {number} of backup {self._backup_id} was pruned")
        document = decode_document(data, self._storage.url_of(name))
        if document.number != number or document.backup_id != self._backup_id:
            raise DamagedManifest(
                f"manifest {self._storage.url_of(name)} says that it is number {document.number} "
                f"of backup {one_line(document.backup_id)}: it was copied or renamed"
            )
        return StoredManifest(document, len(data))

    def _resolve(self, stored: StoredManifest) -> KnownManifest:
        """Read what it is a delta on, down to one that is known, or stored whole, and apply the deltas."""
        deltas: list[tuple[ManifestDelta, int]] = []
        known: KnownManifest | None = None
        while known is None:
            document = stored.document
            if isinstance(document, Manifest):
                known = self.remember(KnownManifest(document, Chain(stored.size_bytes)))
                break
            deltas.append((document, stored.size_bytes))
            known = self._remembered(document)
            if known is None:
                below = self._below(document)
                if isinstance(below, KnownManifest):
                    known = below
                    deltas.pop()
                else:
                    stored = below
        for delta, size_bytes in reversed(deltas):
            manifest = apply_delta(known.manifest, delta)
            known = self.remember(KnownManifest(manifest, known.chain.with_delta(size_bytes), known.checked))
        return known

    def _below(self, delta: ManifestDelta) -> StoredManifest | KnownManifest:
        """What the delta follows, or, where that is pruned, the checkpoint of what the delta itself says."""
        if delta.base_number >= delta.number:
            raise DamagedManifest(f"manifest {delta.number} of backup {self._backup_id} follows {delta.base_number}")
        try:
            return self.stored(delta.base_number)
        except (ManifestPruned, ManifestMissing) as error:
            name = checkpoint_name(delta.number)
            try:
                data = self._storage.read(name)
            except ObjectNotFound:
                self.stored(delta.number)  # Where it was pruned meanwhile, that is what is wrong.
                raise DamagedManifest(
                    f"manifest {delta.number} of backup {self._backup_id} cannot be read: it follows manifest "
                    f"{delta.base_number}, and {error}"
                ) from None
            whole = decode_document(data, self._storage.url_of(name))
            if not isinstance(whole, Manifest) or (whole.number, whole.run_id) != (delta.number, delta.run_id):
                raise DamagedManifest(
                    f"{self._storage.url_of(name)} is not what manifest {delta.number} says"
                ) from None
            return self.remember(KnownManifest(whole, Chain(len(data))))

    def _remembered(self, delta: ManifestDelta) -> KnownManifest | None:
        known = self._known.get(delta.base_number)
        return known if known is not None and known.manifest.run_id == delta.base_run_id else None
