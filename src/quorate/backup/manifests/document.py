"""A manifest as one object of the storage: whole, or as a delta on the one before it.

Both are JSON and end with their own SHA-256. Which of them is written is decided here: deltas until they would make
reading dear, then a whole one again.
"""

from typing import Final, NamedTuple

import msgspec

from quorate.backup.errors import DamagedManifest
from quorate.backup.manifests.delta import Chain, ManifestDelta, delta_between
from quorate.backup.manifests.manifest import FORMAT_VERSION, Manifest, encode_manifest
from quorate.backup.objects.stored_documents import DocumentFault, decode_json, is_sealed, seal

#: Whoever reads a manifest opens at most so many objects on top of a whole one.
MAX_DELTAS: Final = 60
#: Deltas together are at most so many times as large as the whole one below them: reading stays in proportion, and
#: whole ones add at most a quarter to what the deltas cost.
MAX_DELTA_RATIO: Final = 4


class KnownManifest(NamedTuple):
    """A manifest and what it is made of in the storage."""

    manifest: Manifest
    chain: Chain


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
