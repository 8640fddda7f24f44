"""A manifest in the storage: how it is written, and how it is read from as many objects as it is stored in. Does I/O.

One is stored whole, or as a delta on the one before it. All are JSON and end with their own SHA-256. Deltas are
written until they would make reading dear, then a small manifest is stored whole again. One that is not small is stored
as a layer, and itself as a delta on that, which says next to nothing. A layer is the lowest, and whole, or a delta on
those below; a new one takes the place of smaller ones, as levels are merged in a log-structured store. So what a backup
has said for long is not said again every few rounds, but each time that a quarter has come to it. A compaction begins a
layer, so that those go which only say what it has merged, and leaves few: each at least four times as large as the one
on it. What comes on those until the next compaction, mostly to be merged, leaves them as they are.

A manifest that is a delta is read with what it follows, down to one that stands by itself or on layers. Where that was
pruned, there is a checkpoint: the delta's own manifest, on the same layers, or whole where there are none.
"""

import contextlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from quorate.backup.errors import DamagedManifest, ManifestMissing, ManifestPruned, ObjectNotFound, StorageError
from quorate.backup.manifests.delta import Chain, ManifestDelta, apply_delta, delta_between
from quorate.backup.manifests.manifest import (
    FORMAT_VERSION,
    MAX_LAYERS,
    READABLE_VERSIONS,
    Layer,
    Manifest,
    encode_manifest,
)
from quorate.backup.manifests.rules import check_manifest
from quorate.backup.objects.names import PRUNED_CONTENT, checkpoint_name, manifest_name
from quorate.backup.objects.storage import ObjectStorage
from quorate.backup.objects.stored_documents import DocumentFault, decode_json, is_sealed, one_line, seal

#: Whoever reads a manifest opens at most so many objects on top of a whole one.
MAX_DELTAS: Final = 60
#: Deltas together are at most so many times as large as the whole one below them: reading stays in proportion, and
#: whole ones add at most a quarter to what the deltas cost.
MAX_DELTA_RATIO: Final = 4
#: A manifest that would be smaller is stored whole, and not on layers.
MIN_LAYERED_BYTES: Final = 64 * 1024
# Of the layers that a compaction leaves, each is at least so many times as large as the one on it.
_ORDERED_RATIO = 4
# Of the first layers after it each is about as large as the one on it, or larger; above, at least twice as large.
_EQUAL_LAYERS = 8
# Manifests that are remembered, and layers: most are asked for because the next one follows them.
_REMEMBERED = 32
_MAX_LOOKS = 10


class KnownManifest(NamedTuple):
    """A manifest and what it is made of in the storage."""

    manifest: Manifest
    chain: Chain
    checked: Manifest | None = None  # The last that all rules are known to hold of: itself, or one that it follows.


class EncodedManifest(NamedTuple):
    content: bytes
    known: KnownManifest  # With the layers that it is stored on.
    layer_content: bytes | None = None  # Of the uppermost layer, where that is to be stored first.


def encode_document(
    manifest: Manifest,
    base: KnownManifest | None,
    read_layers: Callable[[Sequence[Layer]], Sequence[Manifest]],
) -> EncodedManifest:
    """How the manifest is to be stored. ``base`` is the one that it follows, where that is known and stays.

    Its layers are those of the manifest that it was made of, which nobody deletes before a run on that one fails.
    """
    begins_layer = (
        manifest.compacted_from is not None and base is not None and base.chain.snapshot_bytes >= MIN_LAYERED_BYTES
    )
    if base is not None and not begins_layer and (encoded := _on_base(manifest, base)):
        return encoded
    manifest = msgspec.structs.replace(manifest, format_version=FORMAT_VERSION)
    alone = msgspec.structs.replace(manifest, layers=[])
    whole = encode_manifest(alone)
    if len(whole) < MIN_LAYERED_BYTES or (base is None and not manifest.layers):
        return EncodedManifest(whole, KnownManifest(alone, Chain(len(whole)), checked=alone))
    return _on_new_layer(manifest, whole, read_layers(manifest.layers))


def encode_checkpoint(manifest: Manifest, layers: Sequence[Manifest]) -> bytes:
    """``layers`` are what those of the manifest hold. It names the same ones: what follows it may stand on them."""
    whole = encode_manifest(manifest)
    content = _on_layers(manifest, layers) if layers else whole
    return min(content or whole, whole, key=len)


def _on_base(manifest: Manifest, base: KnownManifest) -> EncodedManifest | None:
    """None where it has to stand by itself."""
    if base.chain.delta_count >= MAX_DELTAS or manifest.layers != base.manifest.layers:
        return None
    delta = delta_between(base.manifest, manifest, base.chain)
    if delta is None:
        return None
    content = seal(msgspec.json.encode(delta))
    chain = base.chain.with_delta(len(content))
    is_small = 2 * len(content) <= chain.snapshot_bytes
    if not is_small or chain.delta_bytes > MAX_DELTA_RATIO * chain.snapshot_bytes:
        return None
    return EncodedManifest(content, KnownManifest(manifest, chain, checked=manifest))


def _on_new_layer(manifest: Manifest, whole: bytes, below: Sequence[Manifest]) -> EncodedManifest:
    """The layers below that do not stay are said again in the new one."""
    contents: list[bytes | None] = [whole]
    contents += [_on_layers(manifest, below[:height]) for height in range(1, len(below) + 1)]
    height = _staying(manifest, contents, below)
    content = contents[height] or whole
    layer = Layer(number=manifest.number, run_id=manifest.run_id, size_bytes=len(content))
    standing = msgspec.structs.replace(manifest, layers=[*manifest.layers[:height], layer])
    stored = _on_layers(standing, [*below[:height], msgspec.structs.replace(standing, layers=standing.layers[:-1])])
    if stored is None:
        alone = msgspec.structs.replace(manifest, layers=[])
        return EncodedManifest(whole, KnownManifest(alone, Chain(len(whole)), checked=alone))
    chain = chain_of(standing.layers).with_delta(len(stored))
    return EncodedManifest(stored, KnownManifest(standing, chain, checked=standing), layer_content=content)


def _staying(manifest: Manifest, contents: Sequence[bytes | None], below: Sequence[Manifest]) -> int:
    """How many layers the new one is put on. ``contents`` is what it holds on none of them, on one, and so on.

    A compaction puts all below it in order, by size. Those since the last compaction do not touch what that one has
    put in order, be it smaller than they are: most of what they say is merged by the next one.
    """
    sizes = [layer.size_bytes for layer in manifest.layers]
    in_order = max((place + 1 for place, each in enumerate(below) if each.compacted_from is not None), default=0)
    orders_all = manifest.compacted_from is not None or len(below) >= MAX_LAYERS
    for height in range(min(len(below), MAX_LAYERS - 1), 0, -1):
        content, without = contents[height], contents[height - 1]
        if content is None or (without is not None and 4 * (len(without) - len(content)) <= sizes[height - 1]):
            continue  # A layer that saves less than a quarter of its size is not worth an object to read.
        if orders_all:
            stays = _are_in_order([*sizes[:height], len(content)])
        else:
            equal = height - in_order <= _EQUAL_LAYERS
            stays = height <= in_order or (0.75 if equal else 2) * len(content) <= sizes[height - 1]
        if stays:
            return height
    return 0


def _are_in_order(sizes: Sequence[int]) -> bool:
    """So there are few of them, and each is written again only as part of one that is larger by a quarter."""
    least_bytes = MIN_LAYERED_BYTES // 8
    return all(lower >= max(_ORDERED_RATIO * upper, least_bytes) for lower, upper in pairwise(sizes))


def _on_layers(manifest: Manifest, layers: Sequence[Manifest]) -> bytes | None:
    """The manifest as a delta on these of its layers; None where it cannot be told so."""
    standing = msgspec.structs.replace(manifest, layers=manifest.layers[: len(layers)])
    delta = delta_between(layers[-1], standing, chain_of(standing.layers))
    return None if delta is None else seal(msgspec.json.encode(delta))


def chain_of(layers: Sequence[Layer]) -> Chain:
    return Chain(sum(layer.size_bytes for layer in layers))


def decode_document(data: bytes, name: str) -> Manifest | ManifestDelta:
    """Read what is stored as a manifest; ``name`` is for the error."""
    if not is_sealed(data):
        raise DamagedManifest(f"manifest {name} is damaged: it does not match its SHA-256")
    try:
        kind = decode_json(data, _Kind)
        if kind.format_version not in READABLE_VERSIONS:
            raise DamagedManifest(
                f"manifest {name} has format version {kind.format_version}; "
                f"this version of quorate knows {' and '.join(map(str, READABLE_VERSIONS))}"
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
        self._layers: dict[Layer, Manifest] = {}

    def read(self, number: int) -> KnownManifest:
        """Asks the storage at least for the manifest itself, since that may be pruned."""
        for _ in range(_MAX_LOOKS):
            stored = self.stored(number)
            with contextlib.suppress(ManifestPruned):  # One that it follows was, just now: it has a checkpoint by now.
                known = self._resolve(stored)
                check_manifest(known.manifest, known.checked)
                return self.remember(known._replace(checked=known.manifest))
        raise StorageError(f"manifest {number} of backup {self._backup_id} cannot be read while others are pruned")

    def remember(self, known: KnownManifest) -> KnownManifest:
        number = known.manifest.number
        kept = [each for each in self._known.items() if each[0] != number][1 - _REMEMBERED :]
        self._known = {**dict(kept), number: known}
        return known

    def layers(self, layers: Sequence[Layer]) -> list[Manifest]:
        """What each of them holds, the lowest first."""
        found: list[Manifest] = []
        for layer in layers:
            manifest = self._layers.get(layer) or self._read_layer(layer, found[-1] if found else None)
            if manifest.layers != layers[: len(found)]:
                raise DamagedManifest(f"{self._storage.url_of(layer.name)} does not stand on the layers below it")
            self.remember_layer(layer, manifest)
            found.append(manifest)
        return found

    def remember_layer(self, layer: Layer, manifest: Manifest) -> None:
        kept = [each for each in self._layers.items() if each[0] != layer][1 - _REMEMBERED :]
        self._layers = {**dict(kept), layer: manifest}

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
            known = self._uppermost_layer(document) if document.layers else self._remembered(document)
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
            checkpoint = decode_document(data, self._storage.url_of(name))
            if (checkpoint.number, checkpoint.run_id) != (delta.number, delta.run_id):
                raise DamagedManifest(
                    f"{self._storage.url_of(name)} is not what manifest {delta.number} says"
                ) from None
            return self.remember(self._by_itself(StoredManifest(checkpoint, len(data))))

    def _by_itself(self, stored: StoredManifest) -> KnownManifest:
        document, size_bytes = stored
        if isinstance(document, Manifest):
            return KnownManifest(document, Chain(size_bytes))
        if not document.layers:
            raise DamagedManifest(
                f"the checkpoint of manifest {document.number} follows manifest {document.base_number}"
            )
        below = self._uppermost_layer(document)
        return KnownManifest(apply_delta(below.manifest, document), below.chain.with_delta(size_bytes), below.checked)

    def _uppermost_layer(self, delta: ManifestDelta) -> KnownManifest:
        try:
            layer = self.layers(delta.layers)[-1]
        except ObjectNotFound as error:
            self.stored(delta.number)  # Where it was pruned meanwhile, that is what is wrong.
            raise DamagedManifest(
                f"manifest {delta.number} of backup {self._backup_id} cannot be read: {error}"
            ) from None
        return KnownManifest(layer, chain_of(delta.layers), checked=layer)

    def _read_layer(self, layer: Layer, below: Manifest | None) -> Manifest:
        url = self._storage.url_of(layer.name)
        data = self._storage.read(layer.name)
        document = decode_document(data, url)
        if (document.number, document.run_id, document.backup_id) != (layer.number, layer.run_id, self._backup_id):
            raise DamagedManifest(f"{url} holds another manifest than its name says")
        if len(data) != layer.size_bytes:
            raise DamagedManifest(f"{url} has {len(data)} bytes, not {layer.size_bytes}")
        if isinstance(document, ManifestDelta) and below is not None:
            document = apply_delta(below, document)
        if not isinstance(document, Manifest):
            raise DamagedManifest(f"{url} does not stand on the layers below it")
        check_manifest(document, below)
        return document

    def _remembered(self, delta: ManifestDelta) -> KnownManifest | None:
        known = self._known.get(delta.base_number)
        return known if known is not None and known.manifest.run_id == delta.base_run_id else None
